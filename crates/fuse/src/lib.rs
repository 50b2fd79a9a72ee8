//! The mount: serves a `pando-vfs` tree to the kernel through FUSE.
//!
//! The folders are floors, listed from below. Each uses only floors that are listed before it.
//!
//! * `nodes`: node numbers, and the look-ups that the kernel counts.
//! * `wire`: parses requests and builds replies. It knows no file system and no descriptor.
//! * `channel`: reads one request, or writes one reply, at a descriptor of `/dev/fuse`.
//! * `server`: [`Server`] answers requests in terms of the tree. It knows no bytes, so it can be
//!   tested without a kernel.
//! * `dispatch`: from the bytes of a request to the bytes of its reply.
//! * `inject`: [`Injector`] decorates a dispatcher. It delays requests, fails them or
//!   counts them.
//! * `mount`: mount(2), umount2(2) and fusermount3, with [`MountOptions`].
//! * `session`: mounts, and answers INIT.
//! * `transport`: a [`Transport`] brings requests and replies. [`DeviceTransport`] reads and writes
//!   the device, [`RingTransport`] uses io_uring.
//!
//! [`trace`], the socket of `pando trace`, is independent of them.
//!
//! The difficulties, and the code that answers them:
//!
//! 1. A node number must lead to its inode for as long as the kernel may use it. The tree keeps the
//!    kernel's look-up counts (`nodes`).
//! 2. A file handle may come back after the kernel has forgotten its node. A tree in memory finds
//!    inodes by number until their last name is removed (`nodes`). The kernel looks up `.` and `..`
//!    by node (`server::namespace`).
//! 3. An entry that did not fit in a READDIRPLUS reply must not be counted, nor any entry of a
//!    reply that failed (`server::dir`, `nodes::CountedReply`).
//! 4. A panic must cost one request, not the mount. [`Server`] catches the panic of each operation
//!    and answers EIO.
//! 5. The kernel may cache for a long time. It sees the changes made through the mount, and the
//!    server tells it of those that others make (`notifier`). [`ServerOptions`] says how long. A
//!    negative dentry would hide an entry that the kernel has not made (`server::negatives`).
//! 6. The kernel keeps dirty pages of a mapping for a while, and asks the server where the holes
//!    are. Or it reads and writes files of the host by itself, and the tree must ask the host what
//!    they have become (`server::open_inodes`).
//! 7. A removed file frees its space only when the kernel forgets it, and later requests overtake
//!    that (`server::space`).
//! 8. The kernel checks permission (`default_permissions`), but new files belong to the caller
//!    (`Server::context`), and the server checks what an ioctl reads and what `xcreate` makes
//!    (`server::caller`).
//! 9. The umask must be applied once, in the server, which knows default ACLs (`FUSE_DONT_MASK`,
//!    `server::namespace`).
#![deny(unsafe_code)]

mod channel;
mod dispatch;
mod inject;
mod mount;
mod nodes;
mod notifier;
mod server;
mod session;
pub mod trace;
mod transport;
mod wire;

pub use inject::{Fault, Injector, InjectorOptions, Operation, REQUESTS_XATTR, Report, When};
pub use mount::{MountOptions, Threads, server_end, unmount};
pub use nodes::Attr;
pub use server::{Caller, Changes, Directory, SERVER_PID_XATTR, Server, ServerOptions};
pub use transport::{Connection, DeviceTransport, NO_IO_URING, RingTransport, Transport};
