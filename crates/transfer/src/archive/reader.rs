//! Reads a tar stream.

use std::{
    ffi::OsStr,
    fmt,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use pando_vfs::{FileKind, Timestamp};
use tar_core::{
    EntryType, Header, PaxExtensions, SparseEntry,
    parse::{Limits, ParseEvent, ParsedEntry, Parser},
};

use super::{
    input::Input,
    records::{ACL_KEYS, XATTR_KEY, decode_name, parse_acl, parse_time},
};
use crate::{
    Error, Options, Result,
    contents::Contents,
    entry::{Body, Meta, Sink, copies_xattr},
};

/// A header has one block, and contents have whole blocks.
const BLOCK_BYTES: usize = 512;
/// The most bytes of names, targets and extended attributes of an entry. They are in memory while
/// it is copied.
const METADATA_BYTES_MAX: u32 = 8 << 20;
/// The most regions of data of a file with holes.
const REGIONS_MAX: usize = 1 << 20;
/// The most bytes that the parser may ask for: the metadata, and the regions as text.
const NEEDED_MAX: usize = 64 << 20;
/// More bytes than this are read twice as many at a time: for each request for more, the parser
/// begins again.
const FEW_BYTES: usize = 64 << 10;

/// Puts all entries of a tar stream into `sink`.
pub(crate) fn read(from: impl Read, options: &Options, sink: &mut impl Sink) -> Result<()> {
    let here = |error: io::Error| Error::new("", error);
    let limits = Limits { max_metadata_size: METADATA_BYTES_MAX, max_sparse_entries: REGIONS_MAX, ..Limits::default() };
    let mut parser = Parser::new(limits);
    // A time before 1970 would be one. The other numbers are checked in `meta_of`.
    parser.set_ignore_pax_errors(true);
    let mut input = Input::new(from);
    loop {
        check_extensions(input.unused()).map_err(here)?;
        let (used, entry) = match parser.parse(input.unused()).map_err(|error| here(damaged(error)))? {
            ParseEvent::NeedData { min_bytes } => {
                let have = input.unused().len();
                if min_bytes <= have || min_bytes > NEEDED_MAX {
                    return Err(here(damaged("it has no end of a record, or none that is near")));
                }
                let more = if have > FEW_BYTES { min_bytes.max(2 * have) } else { min_bytes };
                if input.fill(more).map_err(here)? || input.unused().len() >= min_bytes {
                    continue;
                }
                // The end may be missing, or half of it, but no part of an entry.
                let rest = input.unused();
                let is_at_end = rest.len().is_multiple_of(BLOCK_BYTES) && rest.iter().all(|byte| *byte == 0);
                return if is_at_end { Ok(()) } else { Err(here(io::ErrorKind::UnexpectedEof.into())) };
            }
            ParseEvent::End { .. } => return Ok(()),
            // Records that describe the whole stream.
            ParseEvent::GlobalExtensions { consumed, .. } => {
                input.consume(consumed);
                continue;
            }
            ParseEvent::Entry { consumed, entry } => {
                let whole = SparseEntry { offset: 0, length: entry.size };
                (consumed, Entry::new(&entry, entry.size, vec![whole], options)?)
            }
            ParseEvent::SparseEntry { consumed, entry, sparse_map, real_size } => {
                (consumed, Entry::new(&entry, real_size, sparse_map, options)?)
            }
        };
        input.consume(used);
        entry.put(&mut input, sink)?;
    }
}

/// Checks the sizes of the headers that come before that of an entry. The parser adds them up, and
/// a sum could overflow.
fn check_extensions(mut bytes: &[u8]) -> io::Result<()> {
    while let Some((header, rest)) = bytes.split_first_chunk::<BLOCK_BYTES>() {
        let header = Header::from_bytes(header);
        if !matches!(header.entry_type(), EntryType::GnuLongName | EntryType::GnuLongLink | EntryType::XHeader) {
            break;
        }
        let size = header.entry_size().map_err(damaged)?;
        if size > METADATA_BYTES_MAX.into() {
            return Err(damaged(format_args!("a header of {size} bytes")));
        }
        bytes = rest.get((size as usize).next_multiple_of(BLOCK_BYTES)..).unwrap_or_default();
    }
    Ok(())
}

fn damaged(why: impl fmt::Display) -> io::Error {
    invalid(format!("the tar stream is damaged: {why}"))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// An entry of a tar stream, without its contents.
struct Entry {
    path: PathBuf,
    kind: EntryType,
    /// The target of a link.
    target: Vec<u8>,
    device: u64,
    meta: Meta,
    size: u64,
    /// Where the data is that the stream has, which is `stored` bytes and padding.
    regions: Vec<SparseEntry>,
    stored: u64,
}

impl Entry {
    fn new(entry: &ParsedEntry<'_>, size: u64, regions: Vec<SparseEntry>, options: &Options) -> Result<Self> {
        let path = safe_path(&entry.path)?;
        let failed = |error| Error::new(&path, error);
        let meta = meta_of(entry, options).map_err(failed)?;
        let mut end = 0;
        for region in &regions {
            let is_next = region.offset >= end;
            end = region.offset.checked_add(region.length).filter(|end| is_next && *end <= size).ok_or_else(|| {
                failed(invalid("the tar stream has a file whose data is not where its holes end".to_owned()))
            })?;
        }
        let stored = regions.iter().map(|region| region.length).sum::<u64>();
        if stored != entry.size {
            return Err(failed(invalid("the tar stream has a file with more or less data than it says".to_owned())));
        }
        let device = rustix::fs::makedev(entry.dev_major.unwrap_or(0), entry.dev_minor.unwrap_or(0));
        let target = entry.link_target.as_deref().unwrap_or_default().to_vec();
        // The oldest format has no type for directories.
        let is_old_dir = entry.entry_type == EntryType::Regular && entry.path.ends_with(b"/");
        let kind = if is_old_dir { EntryType::Directory } else { entry.entry_type };
        Ok(Self { path, kind, target, device, meta, size, regions, stored })
    }

    fn put<R: Read>(self, input: &mut Input<R>, sink: &mut impl Sink) -> Result<()> {
        let Self { path, kind, target, device, meta, size, regions, stored } = self;
        let target = OsStr::from_bytes(&target);
        let mut contents = Regions { input, regions: regions.into_iter().peekable(), at: 0, size, left: stored };
        match kind {
            EntryType::Directory => sink.put(&path, &meta, Body::Directory)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GnuSparse => {
                sink.put(&path, &meta, Body::File { size, contents: &mut contents })?;
            }
            EntryType::Symlink => sink.put(&path, &meta, Body::Symlink(target))?,
            EntryType::Link => sink.put(&path, &meta, Body::HardLink(&safe_path(target.as_bytes())?))?,
            EntryType::Fifo => sink.put(&path, &meta, Body::Special(FileKind::Fifo, 0))?,
            EntryType::Char => sink.put(&path, &meta, Body::Special(FileKind::CharDevice, device))?,
            EntryType::Block => sink.put(&path, &meta, Body::Special(FileKind::BlockDevice, device))?,
            other => {
                let text = format!("the tar stream has an entry of an unknown type ({:#x})", other.as_byte());
                return Err(Error::new(path, io::Error::new(io::ErrorKind::Unsupported, text)));
            }
        }
        let padding = stored.wrapping_neg() % BLOCK_BYTES as u64;
        let left = contents.left;
        // Their sum may not fit into 64 bits.
        input.skip(left).and_then(|()| input.skip(padding)).map_err(|error| Error::new(path, error))
    }
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

fn meta_of(entry: &ParsedEntry<'_>, options: &Options) -> io::Result<Meta> {
    let narrow = |id: u64| u32::try_from(id).map_err(|_| invalid(format!("the tar stream has the owner {id}")));
    let mut meta = Meta {
        mode: entry.mode & 0o7777,
        uid: narrow(entry.uid)?,
        gid: narrow(entry.gid)?,
        // GNU tar writes a time before 1970 as a negative number in two's complement.
        mtime: Timestamp::from_parts(entry.mtime.cast_signed(), 0),
        xattrs: Vec::new(),
    };
    let pax = entry.pax.unwrap_or_default();
    if !are_whole(pax) {
        return Err(damaged("a record of a header has no end"));
    }
    for record in PaxExtensions::new(pax) {
        let record = record.map_err(damaged)?;
        let (key, value) = (record.key_bytes(), record.value_bytes());
        let text = || String::from_utf8_lossy(value);
        match key {
            b"mtime" => meta.mtime = parse_time(&text()).unwrap_or(meta.mtime),
            // An empty value means that of the header.
            key if is_number(key) && !value.is_empty() && text().parse::<u64>().is_err() => {
                return Err(invalid(format!("the tar stream has a malformed number: {:?}", text())));
            }
            key => {
                if let Some((_, name)) = ACL_KEYS.iter().find(|(acl, _)| acl.as_bytes() == key)
                    && copies_xattr(name.as_bytes(), options)
                    && let Some(acl) = parse_acl(value)?
                {
                    meta.xattrs.push((name.as_bytes().to_vec(), acl.as_xattr().to_vec()));
                } else if let Some(name) = key.strip_prefix(XATTR_KEY.as_bytes()).map(decode_name)
                    && copies_xattr(&name, options)
                {
                    meta.xattrs.push((name, value.to_vec()));
                }
            }
        }
    }
    Ok(meta)
}

/// Whether the value of this PAX record is a number.
fn is_number(key: &[u8]) -> bool {
    const SPARSE: &[u8] = b"GNU.sparse.";
    let of_sparse = key.strip_prefix(SPARSE).is_some_and(|what| what != b"map" && what != b"name");
    of_sparse || [&b"uid"[..], b"gid", b"size"].contains(&key)
}

/// Whether the bytes of a PAX header are records from the first to the last byte: each begins with
/// its length and ends with a newline.
fn are_whole(mut pax: &[u8]) -> bool {
    while !pax.is_empty() {
        let digits = pax.split(|byte| *byte == b' ').next().unwrap_or_default();
        let len = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok());
        let Some((record, rest)) = len.and_then(|len| pax.split_at_checked(len)) else { return false };
        if record.last() != Some(&b'\n') {
            return false;
        }
        pax = rest;
    }
    true
}

/// The contents of an entry: regions of data, and zeros between them.
struct Regions<'a, R> {
    input: &'a mut Input<R>,
    /// Those that are not read to their end.
    regions: std::iter::Peekable<std::vec::IntoIter<SparseEntry>>,
    /// How much of the file has been read.
    at: u64,
    size: u64,
    /// The bytes of data that have not been read.
    left: u64,
}

impl<R> Regions<'_, R> {
    /// The region of data that `at` is in, or else the next one.
    fn region(&mut self) -> Option<SparseEntry> {
        while self.regions.next_if(|region| region.offset + region.length <= self.at).is_some() {}
        self.regions.peek().copied()
    }
}

impl<R: Read> Read for Regions<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.at;
        let (is_data, end) = match self.region() {
            Some(region) if region.offset <= at => (true, region.offset + region.length),
            Some(region) => (false, region.offset),
            None => (false, self.size),
        };
        let count = usize::try_from(end.saturating_sub(at)).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = if is_data {
            let count = self.input.read(&mut buffer[..count])?;
            if count == 0 && !buffer.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.left -= count as u64;
            count
        } else {
            buffer[..count].fill(0);
            count
        };
        self.at += count as u64;
        Ok(count)
    }
}

impl<R: Read> Contents for Regions<'_, R> {
    fn next_data(&mut self, at: u64, size: u64) -> io::Result<u64> {
        // The caller has read all data before `at`, so it leaves out only zeros of a hole.
        self.at = self.at.max(at);
        self.at = self.region().map_or(size, |region| region.offset.max(self.at));
        Ok(self.at)
    }
}
