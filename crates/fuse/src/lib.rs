//! The mount: serves a `pando-vfs` tree to the kernel through FUSE.
//!
//! The folders are floors, listed from below. Each uses only floors that are listed before it.
//!
//! | floor | task |
//! | --- | --- |
//! | `nodes` | node numbers, and the look-ups that the kernel counts |
//! | `wire` | parses requests and builds replies; knows no file system and no descriptor |
//! | `channel` | reads one request, or writes one reply, at a descriptor of `/dev/fuse` |
//! | [`Server`] (`server`) | answers requests in terms of the tree; knows no bytes, so it can be tested without a kernel |
//! | `dispatch` | from the bytes of a request to the bytes of its reply |
//! | [`Injector`] (`inject`) | decorates a dispatcher: delays requests, fails them, counts them |
//! | `mount` | mount(2), umount2(2) and fusermount3; [`MountOptions`] |
//! | `session` | mounts, and answers INIT |
//! | [`Transport`] (`transport`) | brings requests and replies: [`DeviceTransport`] by the device, [`RingTransport`] through io_uring |
//!
//! [`trace`] stands beside them: the socket of `pando trace`.
//!
//! The difficulties, and the code that answers them:
//!
//! | difficulty | answered by |
//! | --- | --- |
//! | a node number must lead to its inode for as long as the kernel may use it | the tree's look-up counts (`nodes`) |
//! | a file handle may come back after the kernel has forgotten its node | a tree in memory finds inodes by number until the last name is removed (`nodes`); look-ups of `.` and `..` by node (`server::namespace`) |
//! | an entry that did not fit in a READDIRPLUS reply must not be counted, nor any entry of a reply that failed | `server::dir`, `nodes::CountedReply` |
//! | a panic must cost one request, not the mount | [`Server`]: the panic of each operation is caught and answered with EIO |
//! | the kernel may cache for a long time, because the tree changes only through this mount | [`ServerOptions`] says how long |
//! | the kernel keeps dirty pages of a mapping for a while, and asks the server where the holes are | `server::mappable` |
//! | a removed file frees its space only when the kernel forgets it, and later requests overtake that | `server::space` |
//! | the kernel checks permission (`default_permissions`), but new files belong to the caller | `Server::context` |
//! | the umask must be applied once, in the server, which knows default ACLs (`FUSE_DONT_MASK`) | `server::namespace` |
#![deny(unsafe_code)]

mod channel;
mod dispatch;
mod inject;
mod mount;
mod nodes;
mod server;
mod session;
pub mod trace;
mod transport;
mod wire;

pub use inject::{Fault, Injector, InjectorOptions, Operation, REQUESTS_XATTR, Report, When};
pub use mount::{MountOptions, unmount};
pub use nodes::Attr;
pub use server::{Caller, SERVER_PID_XATTR, Server, ServerOptions};
pub use transport::{Connection, DeviceTransport, NO_IO_URING, RingTransport, Transport};
