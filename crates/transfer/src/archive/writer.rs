//! Writes a tar stream.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use pando_vfs::FileKind;
use tar::{Builder, EntryType, Header};

use super::records::{pax_time, record_of};
use crate::{
    Error, Result, Summary,
    entry::{Body, Meta, Sink},
};

/// A tar stream that is written.
pub(crate) struct TarTarget<W: Write> {
    builder: Builder<W>,
    summary: Summary,
}

impl<W: Write> TarTarget<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { builder: Builder::new(to), summary: Summary::default() }
    }

    fn try_put(&mut self, path: &Path, meta: &Meta, body: Body<'_>) -> io::Result<()> {
        let records = pax_time(meta.mtime).map(|time| ("mtime".to_owned(), time.into_bytes()));
        let xattrs = meta.xattrs.iter().filter_map(|(name, value)| record_of(name, value));
        let records: Vec<(String, Vec<u8>)> = records.into_iter().chain(xattrs).collect();
        if !records.is_empty() {
            self.builder.append_pax_extensions(records.iter().map(|(key, value)| (key.as_str(), value.as_slice())))?;
        }
        let mut header = Header::new_gnu();
        header.set_mode(meta.mode);
        header.set_uid(meta.uid.into());
        header.set_gid(meta.gid.into());
        header.set_mtime(u64::try_from(meta.mtime.secs()).unwrap_or(0));
        header.set_size(0);
        match body {
            Body::Directory => {
                header.set_entry_type(EntryType::Directory);
                self.builder.append_data(&mut header, path.join(""), io::empty())
            }
            Body::File { size, contents } => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(size);
                self.summary.bytes += size;
                // Exactly as long as the header says, also if the file shrinks meanwhile.
                self.builder.append_data(&mut header, path, contents.chain(io::repeat(0)).take(size))
            }
            Body::Symlink(target) => {
                header.set_entry_type(EntryType::Symlink);
                self.builder.append_link(&mut header, path, target)
            }
            Body::HardLink(first) => {
                header.set_entry_type(EntryType::Link);
                self.builder.append_link(&mut header, path, first)
            }
            Body::Special(kind, rdev) => {
                header.set_entry_type(match kind {
                    FileKind::CharDevice => EntryType::Char,
                    FileKind::BlockDevice => EntryType::Block,
                    _ => EntryType::Fifo,
                });
                header.set_device_major(rustix::fs::major(rdev))?;
                header.set_device_minor(rustix::fs::minor(rdev))?;
                self.builder.append_data(&mut header, path, io::empty())
            }
        }
    }
}

impl<W: Write> Sink for TarTarget<W> {
    fn put(&mut self, path: &Path, meta: &Meta, body: Body<'_>) -> Result<()> {
        // A socket has no type in tar. The directory itself is "./", as `tar -C dir .` writes it.
        if let Body::Special(FileKind::Socket, _) = body {
            self.summary.left_out.push(path.to_owned());
            return Ok(());
        }
        let is_root = path.as_os_str().is_empty();
        let shown = if is_root { Path::new(".") } else { path };
        self.try_put(shown, meta, body).map_err(|error| Error::new(path, error))?;
        self.summary.entries += u64::from(!is_root);
        Ok(())
    }

    fn finish(self) -> Result<Summary> {
        self.builder.into_inner().and_then(|mut to| to.flush()).map_err(|error| Error::new("", error))?;
        Ok(self.summary)
    }
}
