//! The mount: a `pando-vfs` tree served to the kernel through FUSE.
//!
//! ```text
//! kernel  <->  Transport (who reads and writes the device)  <->  Server (what the answers are)  <->  Vfs
//! ```
//!
//! * [`Server`] answers requests in terms of the tree. It knows no wire format, so it can be tested without a kernel,
//!   and every transport serves the same tree in the same way.
//! * [`Transport`] is how requests arrive: [`RingTransport`] has them come through io_uring, where the kernel can do that and may,
//!   [`DeviceTransport`] reads and writes the device. What they carry is taken apart in one place (`wire`, `dispatch`).
//!
//! A [`Store`] between the two counts what is asked and, where wanted, is as slow as a disk or a server far away.
//!
//! What is hard here, and who answers it:
//!
//! | difficulty | answered by |
//! | --- | --- |
//! | a node number must lead to its inode as long as the kernel may use it | the tree's table of numbers that were handed out, with look-up counts (`nodes`) |
//! | a file handle comes back after the kernel has forgotten its node | that table keeps numbers of inodes in memory until the last name is gone; look-ups of `.` and `..` by node (`server::namespace`) |
//! | an entry that did not fit in a readdirplus reply must not be counted, nor any of a reply that failed | `server::dir`, `nodes::Handout` |
//! | a panic must cost one request, not the mount | [`Server`]: each request is unwound on its own and answered EIO |
//! | the kernel caches for a long time, rightly: the tree changes only through this mount | [`ServerOptions`] says how long |
//! | what is written to a mapping, the kernel keeps for a while, and asks here where the holes are | `server::mappable` |
//! | what is removed makes room only when the kernel forgets it, and requests overtake that | `server::room` |
//! | permission is checked once, by the kernel (`default_permissions`); owners of new nodes are still the caller | `Server::context` |
//! | the umask is applied once, here, where default ACLs are known (`FUSE_DONT_MASK`) | `server::namespace` |
#![deny(unsafe_code)]

mod device;
mod device_transport;
mod dispatch;
mod held;
mod nodes;
mod ring;
mod server;
mod session;
mod store;
#[allow(unsafe_code)]
mod sys;
pub mod trace;
mod transport;
pub mod unmount;
mod wire;

pub use device_transport::DeviceTransport;
pub use ring::{NO_IO_URING, RingTransport};
pub use server::{Attr, Caller, REQUESTS_XATTR, SERVER_PID_XATTR, Server, ServerOptions};
pub use store::{Fault, Operation, Report, Store, StoreOptions, When};
pub use transport::{Connection, MountOptions, Transport};
