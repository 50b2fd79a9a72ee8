//! An io_uring whose entries are requests of the kernel's.
//!
//! Each entry of a [`Ring`] has memory that the kernel writes a request to, and reads the answer from. Whose turn it is changes
//! at two points: with the completion of the entry it is ours, with the command that commits the answer it is the kernel's
//! again. So memory is borrowed only between these two, in [`Ring::serve`], and it outlives whatever the kernel may still do.

use std::{
    cell::UnsafeCell,
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use io_uring::{
    IoUring, cqueue,
    opcode::{PollAdd, UringCmd80},
    squeue::Entry128,
    types::Fd,
};
use rustix::io::Errno;
use tracing::error;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::wire::abi::InHeader;

/// `enum fuse_uring_cmd`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// The number of what is no entry: something happened outside.
const ALARM: u64 = u64::MAX;

const FULL: &str = "the submission queue of an io_uring is full";

/// `struct fuse_uring_cmd_req`, in the command area of a submission.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 6],
}

/// `struct fuse_uring_req_header` with `struct fuse_uring_ent_in_out` at its end.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    /// The header of the request, and then of the answer.
    pub(super) in_out: [u8; 128],
    /// The structure that the request begins with, if it has one.
    pub(super) structure: [u8; 128],
    flags: u64,
    commit_id: u64,
    /// How many bytes of the payload are used.
    pub(super) payload_len: u32,
    padding: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Header>() == 288 && size_of::<Command>() == 24 && size_of::<Entry128>() == 128);

impl Header {
    /// What the request says of itself.
    pub(super) fn request(&self) -> InHeader {
        // There are 128 bytes for its 40.
        InHeader::read_from_prefix(&self.in_out).map_or_else(|_| InHeader::new_zeroed(), |(header, _)| header)
    }
}

/// The memory of an entry, and whose it is.
struct Entry {
    queue: u16,
    turn: Turn,
    memory: Box<Memory>,
    payload: Box<[UnsafeCell<u8>]>,
}

/// Who may touch the memory of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// We.
    Ours,
    /// The kernel, since it was handed over by this command.
    Kernels(u32),
}

/// What the kernel reads and writes besides the payload.
struct Memory {
    header: UnsafeCell<Header>,
    /// Where header and payload are.
    parts: [libc::iovec; 2],
}

/// With submissions that have room for a command of FUSE's.
pub(super) type Uring = IoUring<Entry128, cqueue::Entry>;

/// An io_uring, and the entries in which requests come.
pub(super) struct Ring {
    uring: Uring,
    device: Arc<OwnedFd>,
    entries: Vec<Entry>,
}

/// An io_uring for so many entries and an alarm, of this thread and no other.
///
/// # Errors
/// EPERM or ENOSYS where it is forbidden (sysctl kernel.io_uring_disabled, seccomp), EINVAL on old kernels, ENOMEM.
pub(super) fn uring(entries: usize) -> io::Result<Uring> {
    // What completes does so in the thread that waits for it, which no other has to interrupt.
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries as u32 + 1)
}

impl Ring {
    /// Entries with so much memory, one for each of the `queues`.
    pub(super) fn new(uring: Uring, device: Arc<OwnedFd>, queues: &[u16], payload_bytes: usize) -> Self {
        Self { uring, device, entries: queues.iter().map(|&queue| Entry::new(queue, payload_bytes)).collect() }
    }

    /// Hands an entry to the kernel, with the next system call.
    fn submit(&mut self, index: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let entry = &mut self.entries[index];
        let request = Command { flags: 0, commit_id, queue: entry.queue, padding: [0; 6] };
        let mut area = [0; 80];
        area[..size_of::<Command>()].copy_from_slice(request.as_bytes());
        let submission = UringCmd80::new(Fd(self.device.as_raw_fd()), command)
            .cmd(area)
            .addr(Some(entry.memory.parts.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        let submission = with_len(submission, entry.memory.parts.len() as u32);
        entry.turn = Turn::Kernels(command);
        // SAFETY: the descriptor is open as long as the ring has it, and the entry's memory stays where it is until the kernel
        // has given it back, or for ever (see Drop).
        let pushed = unsafe { self.uring.submission().push(&submission) };
        // There is a place for each entry.
        pushed.map_err(|_| io::Error::other(FULL))
    }

    /// Offers all entries to the kernel, waits for requests and has each answered by `answer`, which finds it in the header and
    /// the payload and leaves its answer there; until the connection ends. Once `alarm` can be read, it is asked whether that `ends`
    /// the connection; if not, entries are left to the kernel.
    ///
    /// # Errors
    /// The kernel refuses an entry, or the ring.
    pub(super) fn serve(
        &mut self,
        alarm: BorrowedFd<'_>,
        ends: impl Fn() -> bool,
        mut answer: impl FnMut(&mut Header, &mut [u8]),
    ) -> io::Result<()> {
        for index in 0..self.entries.len() {
            self.submit(index, REGISTER, 0)?;
        }
        self.watch(alarm)?;
        let mut left = self.entries.len();
        while left > 0 {
            let waited = self.uring.submit_and_wait(1).err().as_ref().and_then(Errno::from_io_error);
            if let Some(refused) = waited.filter(|error| ![Errno::INTR, Errno::AGAIN, Errno::BUSY].contains(error)) {
                return Err(refused.into());
            }
            while let Some((number, result)) = self.completed() {
                if number == ALARM {
                    if !ends() {
                        return Ok(());
                    }
                    continue;
                }
                let index = number as usize;
                let command = mem::replace(&mut self.entries[index].turn, Turn::Ours);
                match refusal(result) {
                    None => {
                        let commit_id = self.entries[index].answer(&mut answer);
                        self.submit(index, COMMIT_AND_FETCH, commit_id)?;
                    }
                    Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => left -= 1,
                    Some(refused) if command == Turn::Kernels(COMMIT_AND_FETCH) => {
                        error!(%refused, "the kernel refuses an answer through a ring");
                        // Without an entry, all requests of that queue would wait for ever.
                        self.submit(index, REGISTER, 0)?;
                    }
                    Some(refused) => return Err(refused.into()),
                }
            }
        }
        Ok(())
    }

    /// A completion: the number of what was submitted, and what came of it.
    fn completed(&mut self) -> Option<(u64, i32)> {
        let completion = self.uring.completion().next()?;
        Some((completion.user_data(), completion.result()))
    }

    /// Completes as [`ALARM`] once `alarm` can be read.
    fn watch(&mut self, alarm: BorrowedFd<'_>) -> io::Result<()> {
        let poll = PollAdd::new(Fd(alarm.as_raw_fd()), libc::POLLIN as u32).build().user_data(ALARM);
        // SAFETY: the descriptor is borrowed by the caller, who submits this; there is no memory that it needs.
        let pushed = unsafe { self.uring.submission().push(&poll.into()) };
        pushed.map_err(|_| io::Error::other(FULL))
    }
}

/// The error that the kernel completes an entry with.
fn refusal(result: i32) -> Option<Errno> {
    (result < 0).then(|| Errno::from_raw_os_error(-result))
}

impl Entry {
    fn new(queue: u16, payload_bytes: usize) -> Self {
        // Zeroed memory that nobody has touched takes none.
        let payload = Box::into_raw(vec![0_u8; payload_bytes].into_boxed_slice());
        // SAFETY: the pointer is a box's, and `UnsafeCell<u8>` is laid out as `u8`.
        let payload = unsafe { Box::from_raw(payload as *mut [UnsafeCell<u8>]) };
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut memory = Box::new(Memory { header: UnsafeCell::new(Header::new_zeroed()), parts: [nothing; 2] });
        memory.parts = [
            libc::iovec { iov_base: memory.header.get().cast(), iov_len: size_of::<Header>() },
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() },
        ];
        Self { queue, turn: Turn::Ours, memory, payload }
    }

    /// Has the request in it answered; tells the number by which the answer is committed.
    fn answer(&mut self, answer: &mut impl FnMut(&mut Header, &mut [u8])) -> u64 {
        assert!(self.turn == Turn::Ours, "the kernel has it");
        // SAFETY: it is our turn: the entry has completed, and the kernel leaves its memory alone until it is handed back.
        // Nobody else has references to it: they are made here only, and end here.
        let (header, payload) = unsafe {
            let payload = self.payload.as_ptr().cast_mut().cast::<u8>();
            (&mut *self.memory.header.get(), std::slice::from_raw_parts_mut(payload, self.payload.len()))
        };
        answer(header, payload);
        header.commit_id
    }
}

/// The kernel cancels what it has when the ring goes, at its leisure: memory that it may still have is never freed.
impl Drop for Ring {
    fn drop(&mut self) {
        mem::take(&mut self.entries).into_iter().filter(|entry| entry.turn != Turn::Ours).for_each(mem::forget);
    }
}

/// The same submission with the number of parts at its address, for which the builder has no place.
fn with_len(submission: Entry128, len: u32) -> Entry128 {
    /// Where `struct io_uring_sqe` has its `len`.
    const LEN: usize = 24;
    // SAFETY: a submission is the kernel's `struct io_uring_sqe` (`repr(C)`): 128 bytes without gaps, each of which may have any
    // value.
    let mut bytes: [u8; 128] = unsafe { mem::transmute(submission) };
    bytes[LEN..LEN + 4].copy_from_slice(&len.to_ne_bytes());
    // SAFETY: as above.
    unsafe { mem::transmute(bytes) }
}
