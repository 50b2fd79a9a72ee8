//! An io_uring in whose entries the kernel places requests.
//!
//! Each entry of a [`Ring`] has memory to which the kernel writes a request, and from which it
//! reads the reply. The owner of that memory changes at two points. The completion of the entry
//! gives it to the server. The command that commits the reply gives it back to the kernel. So the
//! server borrows the memory only between these two points, while it answers a request. The memory
//! lives for as long as the kernel may use it.

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

/// The user data of the poll on the shutdown pipe. Entries have their index.
const SHUTDOWN: u64 = u64::MAX;

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
    /// The first structure of the request, if it has one.
    pub(super) structure: [u8; 128],
    flags: u64,
    commit_id: u64,
    /// The number of bytes of the payload that are used.
    pub(super) payload_len: u32,
    padding: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Header>() == 288 && size_of::<Command>() == 24 && size_of::<Entry128>() == 128);

impl Header {
    /// The header of the request.
    pub(super) fn request(&self) -> InHeader {
        // This cannot fail: the field has 128 bytes, and the header 40.
        InHeader::read_from_prefix(&self.in_out).map(|(header, _)| header).unwrap_or_default()
    }
}

/// The memory of an entry, and its owner.
pub(super) struct Entry {
    queue: u16,
    owner: Owner,
    /// The kernel knows the entry.
    is_registered: bool,
    memory: Box<Memory>,
    payload: Box<[UnsafeCell<u8>]>,
}

/// The owner of an entry's memory: only the owner may access it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Server,
    Kernel,
}

/// The memory that the kernel reads and writes besides the payload.
struct Memory {
    header: UnsafeCell<Header>,
    /// The addresses of header and payload.
    parts: [libc::iovec; 2],
}

/// An io_uring whose submissions are large enough for FUSE's commands.
pub(super) type Uring = IoUring<Entry128, cqueue::Entry>;

/// An io_uring and its entries.
pub(super) struct Ring {
    uring: Uring,
    device: Arc<OwnedFd>,
    /// None for one that another ring has now.
    entries: Vec<Option<Entry>>,
    /// How many entries may still get a request.
    left: usize,
    /// Requests that will be tried again.
    waiting: Vec<Waiting>,
}

/// A request that will be tried again.
struct Waiting {
    index: usize,
    tries: u32,
    due: Instant,
}

/// Why a ring has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The connection has ended.
    Connection,
    /// Another thread has ended, but the connection has not.
    Shutdown,
    /// The kernel refuses an entry before any request has arrived. If it refuses those of all
    /// rings, it sends requests to the device.
    Refused(Errno),
    /// Other rings have all entries now.
    Taken,
}

/// What became of the request in an entry.
pub(super) enum Answered {
    /// The reply is in the entry.
    Now(Entry),
    /// The request is still in the entry. It is to be tried again after this time.
    Again(Entry, Duration),
    /// Another ring has the entry now, and has answered the request.
    Elsewhere,
}

/// Serves the requests of a ring.
pub(super) trait Serve {
    /// Answers the request in an entry. `tries` is how often it was tried before. With None it must
    /// be answered now.
    fn answer(&mut self, entry: Entry, tries: Option<u32>) -> Answered;

    /// Whether the connection has ended. Called when the shutdown pipe is readable.
    fn ends(&self) -> bool;
}

/// An io_uring for this many entries and the shutdown pipe. Only this thread may use it.
///
/// # Errors
/// EPERM or ENOSYS if it is forbidden (sysctl kernel.io_uring_disabled, seccomp), EINVAL on an old
/// kernel, ENOMEM.
pub(super) fn uring(entries: usize) -> io::Result<Uring> {
    // Completions run in the thread that waits for them, so that no other thread interrupts it.
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries as u32 + 1)
}

impl Ring {
    /// A ring with these entries. They are new, or come from other rings with replies in them.
    pub(super) fn new(uring: Uring, device: Arc<OwnedFd>, entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries: Vec<_> = entries.into_iter().map(Some).collect();
        Self { uring, device, left: entries.len(), entries, waiting: Vec::new() }
    }

    /// Gives an entry to the kernel, with the reply in it if it had a request. The next system call
    /// submits it.
    fn submit(&mut self, index: usize, mut entry: Entry) -> io::Result<()> {
        let (command, commit_id) =
            if entry.is_registered { (COMMIT_AND_FETCH, entry.parts().0.commit_id) } else { (REGISTER, 0) };
        let request = Command { flags: 0, commit_id, queue: entry.queue, padding: [0; 6] };
        let mut area = [0; 80];
        area[..size_of::<Command>()].copy_from_slice(request.as_bytes());
        let submission = UringCmd80::new(Fd(self.device.as_raw_fd()), command)
            .cmd(area)
            .addr(Some(entry.memory.parts.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        let submission = with_len(submission, entry.memory.parts.len() as u32);
        (entry.owner, entry.is_registered) = (Owner::Kernel, true);
        self.entries[index] = Some(entry);
        // SAFETY: the ring keeps the descriptor open. The entry's memory stays in place until the
        // kernel has given it back; if it never does, the memory is never freed (see Drop).
        let pushed = unsafe { self.uring.submission().push(&submission) };
        // The queue has a slot for each entry.
        pushed.map_err(|_| io::Error::other(FULL))
    }

    /// Gives all entries to the kernel, waits for requests and has them answered, until the
    /// connection ends, the kernel refuses an entry, or other rings have all entries. When
    /// `shutdown` is readable before that, it returns and leaves the entries to the kernel.
    ///
    /// # Errors
    /// The kernel refuses an answer, or the ring.
    pub(super) fn serve(&mut self, shutdown: BorrowedFd<'_>, serves: &mut impl Serve) -> io::Result<Ended> {
        let mut has_served = false;
        for index in 0..self.entries.len() {
            if let Some(entry) = self.entries[index].take() {
                has_served |= entry.is_registered;
                self.submit(index, entry)?;
            }
        }
        self.watch(shutdown)?;
        while self.left > 0 {
            self.wait()?;
            while let Some((number, result)) = self.completed() {
                if number == SHUTDOWN {
                    if !serves.ends() {
                        return Ok(Ended::Shutdown);
                    }
                    continue;
                }
                let index = number as usize;
                let Some(entry) = self.entries[index].as_mut() else { continue };
                entry.owner = Owner::Server;
                match refusal(result) {
                    None => {
                        has_served = true;
                        self.answer(index, 0, serves)?;
                    }
                    Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => self.left -= 1,
                    // So far all commands were registrations.
                    Some(refused) if !has_served => return Ok(Ended::Refused(refused)),
                    Some(refused) => return Err(refused.into()),
                }
            }
            self.try_again(serves)?;
        }
        Ok(if self.entries.iter().all(Option::is_none) { Ended::Taken } else { Ended::Connection })
    }

    /// Submits all commands, and waits for a completion or until a request must be tried again.
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
            // The kernel lacks a resource. Without a pause it would be called again at once.
            Some(Errno::AGAIN | Errno::BUSY) => {
                thread::sleep(Duration::from_millis(1));
                Ok(())
            }
            Some(refused) => Err(refused.into()),
        }
    }

    /// Has the request in an entry answered, and gives the entry back to the kernel; or keeps the
    /// request to try it again.
    fn answer(&mut self, index: usize, tries: u32, serves: &mut impl Serve) -> io::Result<()> {
        let Some(entry) = self.entries[index].take() else { return Ok(()) };
        // The last entry of a queue cannot be kept: the request that frees space may come in it.
        let is_free = |other: &Entry| other.queue == entry.queue && other.owner != Owner::Server;
        let others = self.entries.iter().flatten().any(is_free);
        match serves.answer(entry, others.then_some(tries)) {
            Answered::Now(entry) => self.submit(index, entry),
            Answered::Again(entry, pause) => {
                self.entries[index] = Some(entry);
                self.waiting.push(Waiting { index, tries: tries + 1, due: Instant::now() + pause });
                Ok(())
            }
            Answered::Elsewhere => {
                self.left -= 1;
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

    /// A completion: the user data of the submission, and its result.
    fn completed(&mut self) -> Option<(u64, i32)> {
        let completion = self.uring.completion().next()?;
        Some((completion.user_data(), completion.result()))
    }

    /// Submits a poll that completes with [`SHUTDOWN`] when `shutdown` is readable.
    fn watch(&mut self, shutdown: BorrowedFd<'_>) -> io::Result<()> {
        let poll = PollAdd::new(Fd(shutdown.as_raw_fd()), libc::POLLIN as u32).build().user_data(SHUTDOWN);
        // SAFETY: the caller submits this while it borrows the descriptor. No memory is involved.
        let pushed = unsafe { self.uring.submission().push(&poll.into()) };
        pushed.map_err(|_| io::Error::other(FULL))
    }
}

/// The error that the kernel completes an entry with.
fn refusal(result: i32) -> Option<Errno> {
    (result < 0).then(|| Errno::from_raw_os_error(-result))
}

impl Entry {
    /// An entry for this queue that the kernel does not know yet.
    pub(super) fn new(queue: u16, payload_bytes: usize) -> Self {
        // Zeroed memory takes no pages until it is written.
        let payload = Box::into_raw(vec![0_u8; payload_bytes].into_boxed_slice());
        // SAFETY: the pointer comes from a box, and `UnsafeCell<u8>` has the layout of `u8`.
        let payload = unsafe { Box::from_raw(payload as *mut [UnsafeCell<u8>]) };
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut memory = Box::new(Memory { header: UnsafeCell::new(Header::new_zeroed()), parts: [nothing; 2] });
        memory.parts = [
            libc::iovec { iov_base: memory.header.get().cast(), iov_len: size_of::<Header>() },
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() },
        ];
        Self { queue, owner: Owner::Server, is_registered: false, memory, payload }
    }

    /// Header and payload of a request or of its reply.
    pub(super) fn parts(&mut self) -> (&mut Header, &mut [u8]) {
        assert!(self.owner == Owner::Server, "the kernel owns the entry");
        // SAFETY: the server owns the entry (asserted above): it has completed, and the kernel does
        // not access its memory until it is given back. For that the entry must be moved or
        // borrowed again. References to the memory are made only here, and borrow the entry.
        unsafe {
            let payload = self.payload.as_ptr().cast_mut().cast::<u8>();
            (&mut *self.memory.header.get(), std::slice::from_raw_parts_mut(payload, self.payload.len()))
        }
    }
}

// SAFETY: an entry is the only owner of its memory on the side of the server. The addresses in it
// are those of that memory.
unsafe impl Send for Entry {}

/// The kernel cancels its entries some time after the ring is closed. So the memory of an entry
/// that the kernel owns is never freed.
impl Drop for Ring {
    fn drop(&mut self) {
        let entries = mem::take(&mut self.entries).into_iter().flatten();
        entries.filter(|entry| entry.owner != Owner::Server).for_each(mem::forget);
    }
}

/// Sets the number of parts at the submission's address, a field that the builder cannot set.
fn with_len(submission: Entry128, len: u32) -> Entry128 {
    /// The offset of `len` in `struct io_uring_sqe`.
    const LEN: usize = 24;
    // SAFETY: a submission is the kernel's `struct io_uring_sqe` (`repr(C)`): 128 bytes without
    // padding, and any value of each byte is valid.
    let mut bytes: [u8; 128] = unsafe { mem::transmute(submission) };
    bytes[LEN..LEN + 4].copy_from_slice(&len.to_ne_bytes());
    // SAFETY: as above.
    unsafe { mem::transmute(bytes) }
}

#[cfg(test)]
mod tests;
