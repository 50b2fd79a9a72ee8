//! The mount: a `pando-vfs` tree served to the kernel through FUSE.
//!
//! ```text
//! kernel  <->  Transport (who reads and writes the device)  <->  Server (what the answers are)  <->  Vfs
//! ```
//!
//! * [`Server`] answers requests in terms of the tree. It knows no wire format, so it can be tested without a kernel,
//!   and every transport serves the same tree in the same way.
//! * [`Transport`] is how requests arrive. [`FuserTransport`] reads the device through the crate `fuser`. It is a
//!   trait because FUSE over io_uring is another way, and because `fuser` knows neither TMPFILE nor STATX nor SYNCFS
//!   (it answers ENOSYS; the kernel then says EOPNOTSUPP for `O_TMPFILE` and does without the other two).
//!
//! A [`Store`] between the two counts what is asked and, where wanted, is as slow as a disk or a server far away.
//!
//! What is hard here, and who answers it:
//!
//! | difficulty | answered by |
//! | --- | --- |
//! | a node number must lead to its inode as long as the kernel may use it | the tree's table of numbers that were handed out, with look-up counts (`nodes`) |
//! | an entry that did not fit in a readdirplus reply must not be counted, nor any of a reply that failed | `server::dir`, `nodes::Handout` |
//! | a panic must cost one request, not the mount | [`Server`]: each request is unwound on its own and answered EIO |
//! | the kernel caches for a long time, rightly: the tree changes only through this mount | [`ServerOptions`] says how long |
//! | what is written to a mapping, the kernel keeps for a while, and asks here where the holes are | `server::mappable` |
//! | what is removed makes room only when the kernel forgets it, and requests overtake that | `server::room` |
//! | permission is checked once, by the kernel (`default_permissions`); owners of new nodes are still the caller | `Server::context` |
//! | the umask is applied once, here, where default ACLs are known (`FUSE_DONT_MASK`) | `server::namespace` |
#![forbid(unsafe_code)]

mod device;
mod fuser_convert;
mod fuser_transport;
mod held;
mod nodes;
mod server;
mod store;
pub mod trace;
mod transport;
pub mod unmount;

pub use fuser_transport::FuserTransport;
pub use server::{Attr, Caller, REQUESTS_XATTR, SERVER_PID_XATTR, Server, ServerOptions};
pub use store::{Fault, Operation, Report, Store, StoreOptions, When};
pub use transport::{Connection, MountOptions, Transport};
