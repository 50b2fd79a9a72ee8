//! A request: its header and its arguments.

use pando_vfs::{Error, Result};
use zerocopy::FromBytes;

use super::abi::{InHeader, IoctlIn, Opcode};

/// A request of the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    pub(crate) args: Args<'a>,
}

impl<'a> Request<'a> {
    /// Parses a request in one piece, as a channel of the device delivers it.
    ///
    /// # Errors
    /// EINVAL if there are fewer bytes than its header says.
    pub(crate) fn whole(bytes: &'a [u8]) -> Result<Self> {
        let (header, rest) = InHeader::read_from_prefix(bytes).map_err(|_| Error::Invalid)?;
        let len = (header.len as usize).checked_sub(size_of::<InHeader>()).ok_or(Error::Invalid)?;
        let rest = rest.get(..len).ok_or(Error::Invalid)?;
        Ok(Self { header, args: Args { first: None, rest } })
    }

    /// The command of an ioctl. None if it is no ioctl.
    pub(crate) fn ioctl(mut self) -> Option<u32> {
        let is_ioctl = self.header.opcode == Opcode::Ioctl as u32;
        is_ioctl.then(|| self.args.structure().map(|IoctlIn { command, .. }| command).ok()).flatten()
    }

    /// A request in parts, as a ring delivers it. `first` holds the structure of the operation, if
    /// the operation has one.
    pub(crate) fn in_parts(header: InHeader, first: &'a [u8], rest: &'a [u8]) -> Self {
        Self { header, args: Args { first: Some(first), rest } }
    }
}

/// The arguments of an operation: usually a structure, then names that each end with a zero byte,
/// or data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Args<'a> {
    /// The structure, if it is not at the start of `rest`.
    first: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Args<'a> {
    /// Takes the first structure.
    ///
    /// # Errors
    /// EINVAL if too few bytes are left.
    pub(crate) fn structure<T: FromBytes>(&mut self) -> Result<T> {
        if let Some(first) = self.first.take() {
            return T::read_from_prefix(first).map(|(structure, _)| structure).map_err(|_| Error::Invalid);
        }
        self.next()
    }

    /// Takes a structure that follows another one.
    ///
    /// # Errors
    /// EINVAL if too few bytes are left.
    pub(crate) fn next<T: FromBytes>(&mut self) -> Result<T> {
        let (structure, rest) = T::read_from_prefix(self.rest).map_err(|_| Error::Invalid)?;
        self.rest = rest;
        Ok(structure)
    }

    /// Takes the next name, without its zero byte.
    ///
    /// # Errors
    /// EINVAL if there is no zero byte.
    pub(crate) fn name(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Error::Invalid)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    /// All bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The data at the end.
    ///
    /// # Errors
    /// EINVAL if fewer than `len` bytes are left.
    pub(crate) fn data(&self, len: u32) -> Result<&'a [u8]> {
        self.rest.get(..len as usize).ok_or(Error::Invalid)
    }
}

#[cfg(test)]
mod tests;
