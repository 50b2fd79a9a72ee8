//! A tar stream, as source and as target.

mod input;
mod reader;
mod records;
mod writer;

pub(crate) use self::{reader::read, writer::TarTarget};
