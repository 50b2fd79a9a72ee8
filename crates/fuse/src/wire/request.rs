//! A request, taken apart.

use pando_vfs::{Error, Result};
use zerocopy::FromBytes;

use super::abi::InHeader;

/// A request of the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    pub(crate) args: Args<'a>,
}

impl<'a> Request<'a> {
    /// One that came as a whole, as the device hands it out.
    ///
    /// # Errors
    /// EINVAL if it is not as long as it says.
    pub(crate) fn whole(bytes: &'a [u8]) -> Result<Self> {
        let (header, rest) = InHeader::read_from_prefix(bytes).map_err(|_| Error::Invalid)?;
        let len = (header.len as usize).checked_sub(size_of::<InHeader>()).ok_or(Error::Invalid)?;
        let rest = rest.get(..len).ok_or(Error::Invalid)?;
        Ok(Self { header, args: Args { first: None, rest } })
    }

    /// One that came in parts, as a ring hands it out: the operation's structure, if it has one, lies in `first`.
    pub(crate) fn in_parts(header: InHeader, first: &'a [u8], rest: &'a [u8]) -> Self {
        Self { header, args: Args { first: Some(first), rest } }
    }
}

/// What an operation is given: mostly a structure, then names, each ended by a zero byte, or data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Args<'a> {
    /// Where the structure lies if not in front of the rest.
    first: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Args<'a> {
    /// The structure that comes first.
    ///
    /// # Errors
    /// EINVAL if there is not so much.
    pub(crate) fn structure<T: FromBytes>(&mut self) -> Result<T> {
        if let Some(first) = self.first.take() {
            return T::read_from_prefix(first).map(|(structure, _)| structure).map_err(|_| Error::Invalid);
        }
        self.next()
    }

    /// A structure that follows another.
    ///
    /// # Errors
    /// EINVAL if there is not so much.
    pub(crate) fn next<T: FromBytes>(&mut self) -> Result<T> {
        let (structure, rest) = T::read_from_prefix(self.rest).map_err(|_| Error::Invalid)?;
        self.rest = rest;
        Ok(structure)
    }

    /// The next name, without its zero byte.
    ///
    /// # Errors
    /// EINVAL if it does not end.
    pub(crate) fn name(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Error::Invalid)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The data at the end.
    ///
    /// # Errors
    /// EINVAL if there is less than `len`.
    pub(crate) fn data(&self, len: u32) -> Result<&'a [u8]> {
        self.rest.get(..len as usize).ok_or(Error::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::{super::abi::RenameIn, *};

    fn header(len: usize) -> InHeader {
        let len = u32::try_from(len).unwrap();
        InHeader { len, opcode: 12, unique: 2, node: 1, ..InHeader::default() }
    }

    #[test]
    fn both_ways_lead_to_the_same() {
        let rename = RenameIn { new_dir: 7 };
        let names = b"old\0new\0";
        let whole = [header(40 + 8 + names.len()).as_bytes(), rename.as_bytes(), names].concat();
        let mut first = rename.as_bytes().to_vec();
        first.resize(128, 0xff);
        for request in [Request::whole(&whole).unwrap(), Request::in_parts(header(56), &first, names)] {
            let mut args = request.args;
            assert_eq!(args.structure::<RenameIn>().unwrap().new_dir, 7);
            assert_eq!((args.name(), args.name()), (Ok(&b"old"[..]), Ok(&b"new"[..])));
            assert_eq!(
                (args.name(), args.data(0), args.data(1)),
                (Err(Error::Invalid), Ok(&b""[..]), Err(Error::Invalid))
            );
        }
        // An operation without a structure.
        let mut args = Request::in_parts(header(44), &first, b"old\0").args;
        assert_eq!(args.name(), Ok(&b"old"[..]));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for len in [0, 39, 41, 4000] {
            let bytes = header(len).as_bytes().to_vec();
            assert_eq!(Request::whole(&bytes).err(), Some(Error::Invalid), "{len}");
        }
        assert_eq!(Request::whole(&[0; 39]).err(), Some(Error::Invalid));
        let bytes = header(40).as_bytes().to_vec();
        let mut args = Request::whole(&bytes).unwrap().args;
        assert_eq!(args.structure::<RenameIn>().err(), Some(Error::Invalid));
        let bytes = [header(43).as_bytes(), b"abc"].concat();
        assert_eq!(Request::whole(&bytes).unwrap().args.name(), Err(Error::Invalid), "no end");
    }
}
