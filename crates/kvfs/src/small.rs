//! The contents of a small file: all of its bytes, and which of its pages have data.

use pando_vfs::{Error, Result};

use crate::files::ContentsFile;

/// The most bytes of a small file. A larger one has a file of the host.
pub(crate) const SMALL: u64 = 16 << 10;
const PAGE: usize = 4096;
const PAGES: usize = SMALL as usize / PAGE;

/// The form of a record of contents: which pages have data, and how many bytes are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pages: u8,
    /// How many bytes it has.
    len: usize,
}

impl Form {
    /// That of a record, or of none. None: the record is damaged.
    pub(crate) fn of(value: Option<&[u8]>) -> Option<Self> {
        let Some(value) = value else { return Some(Self { pages: 0, len: 0 }) };
        value.split_first().map(|(pages, bytes)| Self { pages: *pages, len: bytes.len() })
    }

    /// Whether a file of this size can have such a record.
    pub(crate) fn fits(self, size: u64) -> bool {
        size <= SMALL && self.pages >> PAGES == 0 && self.len == stored_len(self.pages, size as usize)
    }

    /// The occupied space in units of 512 bytes.
    pub(crate) fn blocks(self) -> u64 {
        blocks(self.pages)
    }
}

/// How many bytes are in a record: those of holes at the end are left out.
fn stored_len(pages: u8, size: usize) -> usize {
    size.min((8 - pages.leading_zeros() as usize) * PAGE)
}

fn blocks(pages: u8) -> u64 {
    u64::from(pages.count_ones()) * (PAGE as u64 / 512)
}

/// See the module. Without data, no record is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Small {
    bytes: Vec<u8>,
    /// A bit for each page that has data. The others are holes, which read as 0.
    pages: u8,
}

impl Small {
    /// The contents in a record, of a file with this size.
    ///
    /// # Errors
    /// EIO: the record is damaged.
    pub(crate) fn decode(value: Option<&[u8]>, size: u64) -> Result<Self> {
        let form = Form::of(value).filter(|form| form.fits(size)).ok_or(Error::Io)?;
        let mut bytes = value.map(|value| value[1..].to_vec()).unwrap_or_default();
        bytes.resize(size as usize, 0);
        Ok(Self { bytes, pages: form.pages })
    }

    /// The value of the record.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let end = stored_len(self.pages, self.bytes.len());
        (self.pages != 0).then(|| [&[self.pages], &self.bytes[..end]].concat())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The occupied space in units of 512 bytes.
    pub(crate) fn blocks(&self) -> u64 {
        blocks(self.pages)
    }

    /// Writes, and makes the file longer if the bytes end after its end.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
        for page in offset / PAGE..end.div_ceil(PAGE) {
            self.pages |= 1 << page;
        }
    }

    pub(crate) fn truncate(&mut self, size: usize) {
        self.bytes.resize(size, 0);
        self.pages &= (1_u8 << size.div_ceil(PAGE)).wrapping_sub(1);
    }

    /// Zeros a range, and frees the pages that lie in it.
    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        let [start, end] = [offset, offset.saturating_add(len)].map(|at| at.min(self.bytes.len() as u64) as usize);
        self.bytes[start..end].fill(0);
        let end = offset.saturating_add(len).min(SMALL) as usize;
        for page in start.div_ceil(PAGE)..end / PAGE {
            self.pages &= !(1 << page);
        }
    }

    pub(crate) fn seek_data(&self, offset: u64) -> Option<u64> {
        self.seek(offset, true)
    }

    pub(crate) fn seek_hole(&self, offset: u64) -> u64 {
        self.seek(offset, false).unwrap_or(self.bytes.len() as u64)
    }

    fn seek(&self, offset: u64, data: bool) -> Option<u64> {
        let first = usize::try_from(offset).ok()? / PAGE;
        let page = (first..PAGES).find(|page| (self.pages >> page & 1 == 1) == data)?;
        Some(offset.max((page * PAGE) as u64)).filter(|found| *found < self.bytes.len() as u64)
    }

    /// Writes the data to a file.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn copy_to(&self, file: &dyn ContentsFile) -> Result<()> {
        file.set_len(self.bytes.len() as u64)?;
        let mut next = self.seek_data(0);
        while let Some(start) = next {
            let end = self.seek_hole(start);
            let data = &self.bytes[start as usize..end as usize];
            if file.write(start, data)? < data.len() {
                return Err(Error::NoSpace);
            }
            next = self.seek_data(end);
        }
        Ok(())
    }

    /// The first bytes of a file.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn copy_of(file: &dyn ContentsFile, size: u64) -> Result<Self> {
        let mut small = Self::default();
        let mut next = file.seek_data(0)?;
        while let Some(start) = next.filter(|start| *start < size) {
            let end = file.seek_hole(start)?.min(size);
            let mut data = vec![0; (end - start) as usize];
            file.read(start, &mut data)?;
            small.write(start as usize, &data);
            next = file.seek_data(end)?;
        }
        small.truncate(size as usize);
        Ok(small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_stay_holes() {
        let mut small = Small::default();
        small.write(5000, b"data");
        small.truncate(12_500);
        assert_eq!((small.blocks(), small.seek_data(0), small.seek_hole(4096)), (8, Some(4096), 8192));
        assert_eq!((small.seek_data(8192), small.seek_hole(0)), (None, 0));
        let value = small.encode().expect("data");
        assert_eq!(value.len(), 1 + 8192);
        assert_eq!(Small::decode(Some(&value), 12_500), Ok(small.clone()));
        small.write(12_499, b"x");
        small.punch(4097, 8192);
        assert_eq!((small.blocks(), &small.bytes()[4990..5010]), (16, &[0; 20][..]));
        small.punch(0, 12_288);
        assert_eq!((small.blocks(), small.seek_data(0)), (8, Some(12_288)));
        small.truncate(12_288);
        assert_eq!((small.encode(), small.bytes().len()), (None, 12_288));
        small.truncate(16 << 10);
        small.write(16_383, b"y");
        assert_eq!(small.seek_hole(12_288), 16 << 10);
    }

    #[test]
    fn damaged_records_are_refused() {
        assert_eq!(Small::decode(Some(&[]), 5), Err(Error::Io));
        assert_eq!(Small::decode(Some(&[1, 2, 3]), 1), Err(Error::Io));
        assert_eq!(Small::decode(Some(&[1, 2, 3]), 3), Err(Error::Io));
        assert_eq!(Small::decode(Some(&[0x10, 2, 3]), 2), Err(Error::Io));
        assert_eq!(Small::decode(None, SMALL + 1), Err(Error::Io));
    }
}
