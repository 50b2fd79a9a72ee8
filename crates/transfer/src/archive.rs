//! A tar stream, as source and as target.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use pando_vfs::{FileKind, Timestamp};
use tar::{Archive, Builder, EntryType, Header};

use crate::{
    Error, Options, Result, Summary,
    contents::Contents,
    entry::{Body, Meta, Sink, copies_xattr},
};

/// The PAX record of an extended attribute is this and its name, as star and GNU tar have it.
const XATTR_KEY: &str = "SCHILY.xattr.";

impl<R: Read> Contents for tar::Entry<'_, R> {}

/// Puts all entries of a tar stream into `sink`.
pub(crate) fn read(from: impl Read, options: &Options, sink: &mut impl Sink) -> Result<()> {
    let mut archive = Archive::new(from);
    let here = |error: io::Error| Error::new("", error);
    for entry in archive.entries().map_err(here)? {
        let mut entry = entry.map_err(here)?;
        let path = safe_path(&entry.path_bytes())?;
        put(&path, &mut entry, options, sink)?;
    }
    Ok(())
}

/// The path below the target: without a leading `/` and without `.`.
fn safe_path(bytes: &[u8]) -> Result<PathBuf> {
    let path = Path::new(OsStr::from_bytes(bytes));
    let mut safe = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => safe.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                let error = io::Error::new(io::ErrorKind::InvalidInput, "a path in the tar stream has `..`");
                return Err(Error::new(path, error));
            }
        }
    }
    Ok(safe)
}

fn put<R: Read>(path: &Path, entry: &mut tar::Entry<'_, R>, options: &Options, sink: &mut impl Sink) -> Result<()> {
    let failed = |error: io::Error| Error::new(path, error);
    let meta = meta_of(entry, options).map_err(failed)?;
    let header = entry.header();
    let kind = header.entry_type();
    let link = || entry.link_name_bytes().map(|bytes| bytes.into_owned()).unwrap_or_default();
    match kind {
        EntryType::Directory => sink.put(path, &meta, Body::Directory),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let size = if kind == EntryType::GNUSparse {
                header.as_gnu().map_or(Ok(0), tar::GnuHeader::real_size).map_err(failed)?
            } else {
                entry.size()
            };
            sink.put(path, &meta, Body::File { size, contents: entry })
        }
        EntryType::Symlink => sink.put(path, &meta, Body::Symlink(OsStr::from_bytes(&link()))),
        EntryType::Link => sink.put(path, &meta, Body::HardLink(&safe_path(&link())?)),
        EntryType::Fifo => sink.put(path, &meta, Body::Special(FileKind::Fifo, 0)),
        EntryType::Char | EntryType::Block => {
            let number = |number: io::Result<Option<u32>>| Ok(number.map_err(failed)?.unwrap_or(0));
            let rdev = rustix::fs::makedev(number(header.device_major())?, number(header.device_minor())?);
            let kind = if kind == EntryType::Char { FileKind::CharDevice } else { FileKind::BlockDevice };
            sink.put(path, &meta, Body::Special(kind, rdev))
        }
        // Records that describe the whole stream.
        EntryType::XGlobalHeader => Ok(()),
        other => {
            let text = format!("the tar stream has an entry of an unknown type ({:#x})", other.as_byte());
            Err(failed(io::Error::new(io::ErrorKind::Unsupported, text)))
        }
    }
}

fn meta_of<R: Read>(entry: &mut tar::Entry<'_, R>, options: &Options) -> io::Result<Meta> {
    let header = entry.header();
    let narrow = |id: u64| u32::try_from(id).map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
    let mut meta = Meta {
        mode: header.mode()? & 0o7777,
        uid: narrow(header.uid()?)?,
        gid: narrow(header.gid()?)?,
        // GNU tar writes a time before 1970 as a negative number in two's complement.
        mtime: Timestamp::from_parts(header.mtime()? as i64, 0),
        xattrs: Vec::new(),
    };
    for record in entry.pax_extensions()?.into_iter().flatten() {
        let record = record?;
        let number = || record.value().ok().and_then(|text| text.parse().ok());
        match record.key_bytes() {
            b"mtime" => meta.mtime = record.value().ok().and_then(parse_time).unwrap_or(meta.mtime),
            b"uid" => meta.uid = number().unwrap_or(meta.uid),
            b"gid" => meta.gid = number().unwrap_or(meta.gid),
            key => {
                if let Some(name) = key.strip_prefix(XATTR_KEY.as_bytes())
                    && copies_xattr(name, options)
                {
                    meta.xattrs.push((name.to_vec(), record.value_bytes().to_vec()));
                }
            }
        }
    }
    Ok(meta)
}

/// A PAX time: seconds with a fraction, perhaps negative.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: i64 = digits.parse().ok()?;
    let secs: i64 = whole.parse().ok()?;
    if !text.starts_with('-') || nanos == 0 {
        return Some(Timestamp::from_parts(secs, nanos as u32));
    }
    // -1.25 is 0.75 seconds after -2.
    Some(Timestamp::from_parts(secs.checked_sub(1)?, (1_000_000_000 - nanos) as u32))
}

/// A PAX time, if the header cannot hold it: it has whole seconds since 1970.
fn pax_time(time: Timestamp) -> Option<String> {
    let (secs, nanos) = (time.secs(), time.nanos());
    match (secs, nanos) {
        (0.., 0) => None,
        (0.., _) => Some(format!("{secs}.{nanos:09}")),
        (_, 0) => Some(secs.to_string()),
        // 0.75 seconds after -2 is -1.25.
        _ => Some(format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos)),
    }
}

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
        let xattrs = meta.xattrs.iter().filter_map(|(name, value)| {
            // The key of a record is text.
            let name = std::str::from_utf8(name).ok()?;
            Some((format!("{XATTR_KEY}{name}"), value.clone()))
        });
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
