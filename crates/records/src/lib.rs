//! Records of many directory entries: names, attributes, link targets and extended attributes, in
//! an arena of fixed pages.
//!
//! A [`Batch`] holds some entries of one directory, in directory order. A scan fills it. It has two
//! halves:
//!
//! ```text
//!  Names                                      Parts, each filled by one thread
//!  +-----------------------------+            +-------------------------------------+
//!  | entries: place of the name, |   index    | attrs:  Filled, Filled, ...         |
//!  |          ino, cookie, type  |<-----------+   errno, Attr, place of the rest    |
//!  | pages:   bytes of names     |            | pages:  target name value name ...  |
//!  +-----------------------------+            +-------------------------------------+
//! ```
//!
//! The names come first. They never change while threads fill the parts, in any order. A part
//! belongs to one thread while it grows, so an entry takes no lock and no allocation. All pages
//! have one size ([`PAGE_BYTES`], room for the largest extended attribute that Linux allows), and
//! are reused.
//!
//! [`Packer`] and [`Unpacked`] write and read records in another form: one after the other in a
//! buffer of the caller. In this form a tree returns them, to the same process or to another, and a
//! mounted tree takes them to make entries ([`XCREATE`]).
//!
//! The idea of one call that returns names, attributes and extended attributes in a vector of pages
//! is that of xgetdents (Abhijith Das, "readdirplus-type system call", linux-fsdevel, 2012 to
//! 2014).
#![forbid(unsafe_code)]

mod attr;
mod batch;
mod calls;
mod data_runs;
mod file_kind;
mod mask;
mod names;
mod packed;
mod page;
mod part;
mod xattr_list;

pub use attr::{Attr, Fields, Time};
pub use batch::{Batch, Record};
pub use calls::{XCREATE, XCREATE_BYTES, XCREATE_ROOT, XGETDENTS, XGETDENTS_BYTES, XGETDENTS_HEAD_BYTES};
pub use data_runs::data_runs;
pub use file_kind::{FileKind, S_IFMT};
pub use mask::Mask;
pub use names::Names;
pub use packed::{
    ERANGE, Entry, PackedRecord, PackedXattr, PackedXattrs, Packer, Pushed, Unpacked, least_bytes, refuse_xattrs,
    update_records,
};
pub use page::{PAGE_BYTES, Page};
pub use part::{BulkXattr, Filled, LinkAnswer, LinkTarget, Mark, PART_ENTRIES, Part, XattrOutcome, XattrValue, Xattrs};
pub use xattr_list::XattrList;

/// The longest name of an extended attribute, with its prefix, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// The largest value of an extended attribute, in bytes.
pub const XATTR_SIZE_MAX: usize = 65536;
