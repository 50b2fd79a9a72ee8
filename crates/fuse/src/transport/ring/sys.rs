//! An io_uring whose entries are requests of the kernel's.
//!
//! Each entry of a [`Ring`] has memory that the kernel writes a request to, and reads the answer from. Whose turn it is changes
//! at two points: with the completion of the entry it is ours, with the command that commits the answer it is the kernel's
//! again. So memory is borrowed only between these two, while a request is answered, and it outlives whatever the kernel may still do.

use std::{
    cell::UnsafeCell,
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use io_uring::{
    IoUring, cqueue,
    opcode::{PollAdd, UringCmd80},
    squeue::Entry128,
    types::{Fd, SubmitArgs, Timespec},
};
use rustix::io::Errno;
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
        InHeader::read_from_prefix(&self.in_out).map(|(header, _)| header).unwrap_or_default()
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
    Ours,
    Kernels,
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
    /// Requests whose answers are to be tried again.
    waiting: Vec<Waiting>,
}

/// A request whose answer is to be tried again.
struct Waiting {
    index: usize,
    tries: u32,
    due: Instant,
}

/// Why a ring has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The connection has.
    Connection,
    /// There was an alarm, and the connection goes on.
    Alarm,
    /// The kernel refuses an entry before any request has come: it sends them by the device then.
    Refused(Errno),
}

/// What serves the requests of a ring.
pub(super) trait Serve {
    /// Answers the request in `header` and `payload`, there; or tells in what time it is to be tried again, after so many
    /// `tries`. There are none where it has to be answered now.
    fn answer(&mut self, header: &mut Header, payload: &mut [u8], tries: Option<u32>) -> Option<Duration>;

    /// Whether the connection ends, asked when there is an alarm.
    fn ends(&self) -> bool;
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
    /// Entries with so much memory, one for each of `queues`, in which a queue may come more than once.
    pub(super) fn new(
        uring: Uring,
        device: Arc<OwnedFd>,
        queues: impl IntoIterator<Item = u16>,
        payload_bytes: usize,
    ) -> Self {
        let entries = queues.into_iter().map(|queue| Entry::new(queue, payload_bytes)).collect();
        Self { uring, device, entries, waiting: Vec::new() }
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
        entry.turn = Turn::Kernels;
        // SAFETY: the descriptor is open as long as the ring has it, and the entry's memory stays where it is until the kernel
        // has given it back, or for ever (see Drop).
        let pushed = unsafe { self.uring.submission().push(&submission) };
        // There is a place for each entry.
        pushed.map_err(|_| io::Error::other(FULL))
    }

    /// Offers all entries to the kernel, waits for requests and has each answered; until the connection ends. Once `alarm` can be
    /// read, entries are left to the kernel unless that is the end of the connection.
    ///
    /// # Errors
    /// The kernel refuses an answer, or the ring.
    pub(super) fn serve(&mut self, alarm: BorrowedFd<'_>, serves: &mut impl Serve) -> io::Result<Ended> {
        for index in 0..self.entries.len() {
            self.submit(index, REGISTER, 0)?;
        }
        self.watch(alarm)?;
        let (mut left, mut has_served) = (self.entries.len(), false);
        while left > 0 {
            self.wait()?;
            while let Some((number, result)) = self.completed() {
                if number == ALARM {
                    if !serves.ends() {
                        return Ok(Ended::Alarm);
                    }
                    continue;
                }
                let index = number as usize;
                self.entries[index].turn = Turn::Ours;
                match refusal(result) {
                    None => {
                        has_served = true;
                        self.answer(index, 0, serves)?;
                    }
                    Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => left -= 1,
                    // Nothing but registrations has been asked of it.
                    Some(refused) if !has_served => return Ok(Ended::Refused(refused)),
                    Some(refused) => return Err(refused.into()),
                }
            }
            self.try_again(serves)?;
        }
        Ok(Ended::Connection)
    }

    /// Hands over what is ready, and waits until something completes or is to be tried again.
    fn wait(&mut self) -> io::Result<()> {
        let waited = match self.waiting.iter().map(|waiting| waiting.due).min() {
            None => self.uring.submit_and_wait(1),
            Some(due) => {
                let left = Timespec::from(due.saturating_duration_since(Instant::now()));
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&left))
            }
        };
        match waited.err().as_ref().and_then(Errno::from_io_error) {
            None | Some(Errno::INTR | Errno::TIME) => Ok(()),
            // The kernel is short of something, and would be asked again at once.
            Some(Errno::AGAIN | Errno::BUSY) => {
                thread::sleep(Duration::from_millis(1));
                Ok(())
            }
            Some(refused) => Err(refused.into()),
        }
    }

    /// Has the request in an entry answered, and hands the entry back to the kernel; or keeps it for later.
    fn answer(&mut self, index: usize, tries: u32, serves: &mut impl Serve) -> io::Result<()> {
        let queue = self.entries[index].queue;
        // The last one of a queue cannot be kept: whoever brings what is waited for would not be heard.
        let others = self.entries.iter().any(|other| other.queue == queue && other.turn != Turn::Ours);
        match self.entries[index].answer(others.then_some(tries), serves) {
            Ok(commit_id) => self.submit(index, COMMIT_AND_FETCH, commit_id),
            Err(pause) => {
                self.waiting.push(Waiting { index, tries: tries + 1, due: Instant::now() + pause });
                Ok(())
            }
        }
    }

    fn try_again(&mut self, serves: &mut impl Serve) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let due: Vec<Waiting> = self.waiting.extract_if(.., |waiting| waiting.due <= now).collect();
        due.into_iter().try_for_each(|waiting| self.answer(waiting.index, waiting.tries, serves))
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

    /// Has the request in it answered; tells the number by which the answer is committed, or in what time to try again.
    fn answer(&mut self, tries: Option<u32>, serves: &mut impl Serve) -> Result<u64, Duration> {
        assert!(self.turn == Turn::Ours, "the kernel has it");
        // SAFETY: it is our turn: the entry has completed, and the kernel leaves its memory alone until it is handed back.
        // Nobody else has references to it: they are made here only, and end here.
        let (header, payload) = unsafe {
            let payload = self.payload.as_ptr().cast_mut().cast::<u8>();
            (&mut *self.memory.header.get(), std::slice::from_raw_parts_mut(payload, self.payload.len()))
        };
        match serves.answer(header, payload, tries) {
            None => Ok(header.commit_id),
            Some(pause) => Err(pause),
        }
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

#[cfg(test)]
mod tests;
