//! Chunks are mapped from the system and unmapped, on Linux by system calls.
//!
//! A general allocator returns memory only from the end of its heap, so one long-lived allocation
//! at the end keeps all memory that was freed before: measured, 137 of 265 MiB after 500,000
//! directories were removed. A chunk that is mapped by itself is returned by itself.
//!
//! If there are many, chunks are cut from huge pages (if the kernel lets a program request one).
//! The translation lookaside buffer of a CPU holds some thousand pages: with small pages, those of
//! 30,000 files. And one page fault brings 2 MiB, instead of 512 page faults.
//!
//! The kernel frees a huge page only as a whole. If a part is unmapped, the kernel keeps the memory
//! until memory is short: 1,024 chunks that were replaced at random, 6,000 times, held 720 MiB, of
//! which 269 were accounted to the process. So free parts wait for the others of their page, and
//! are reused first. If too many wait (an eighth of those in use), single parts are unmapped all
//! the same, and the kernel is made to split their page.

#[cfg(any(not(target_os = "linux"), miri, loom))]
pub(super) use self::elsewhere::{map, unmap};
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
pub(super) use self::linux::{map, unmap};

#[cfg(any(not(target_os = "linux"), miri, loom))]
mod elsewhere {
    use std::{alloc::Layout, ptr::NonNull};

    use crate::tuning::CHUNK_BYTES;

    const LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    /// Memory for a chunk; `None` if the system has none.
    pub(in super::super) fn map() -> Option<NonNull<u8>> {
        // SAFETY: not empty.
        NonNull::new(unsafe { std::alloc::alloc(LAYOUT) })
    }

    /// Returns the memory of a chunk.
    ///
    /// # Safety
    /// It came from [`map`], and is not used any more.
    pub(in super::super) unsafe fn unmap(chunk: NonNull<u8>) {
        // SAFETY: the caller's contract.
        unsafe { std::alloc::dealloc(chunk.as_ptr(), LAYOUT) };
    }
}

#[cfg(all(target_os = "linux", not(any(miri, loom))))]
mod linux {
    use std::{
        collections::BTreeSet,
        iter, mem,
        ptr::{NonNull, null_mut, with_exposed_provenance_mut},
        sync::Mutex,
    };

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use crate::{
        facade::lock,
        tuning::{CHUNK_BYTES, HUGE_AFTER_CHUNKS},
    };

    const HUGE: usize = 2 << 20;
    /// How many chunks a huge page has.
    const PARTS: usize = HUGE / CHUNK_BYTES;

    /// The number of chunks in use, and the addresses of spare ones.
    struct Mapped {
        out: usize,
        /// Chunks that are not in use. These are parts of huge pages that have not been used yet,
        /// or that wait for the other parts. And chunks that the kernel would not unmap, since
        /// there are as many holes between mappings as it allows (vm.max_map_count); these have no
        /// memory behind them.
        spare: BTreeSet<usize>,
    }

    static MAPPED: Mutex<Mapped> = Mutex::new(Mapped::NONE);

    impl Mapped {
        const NONE: Self = Self { out: 0, spare: BTreeSet::new() };

        /// Takes a spare chunk, or `None` if another is to be mapped. Either counts as in use.
        fn take(&mut self) -> Option<usize> {
            self.out += 1;
            // The highest: memory is mapped downwards, so it is nearest to the first chunks, and
            // chunks are unmapped at an end.
            self.spare.pop_last()
        }

        /// Adds the chunks of a huge page, except for the first, which is in use already.
        fn add(&mut self, page: usize) {
            self.spare.extend((CHUNK_BYTES..HUGE).step_by(CHUNK_BYTES).map(|at| page + at));
        }

        /// Puts a chunk back. Returns the chunks to unmap, in ascending order.
        fn put(&mut self, chunk: usize) -> BTreeSet<usize> {
            self.out -= 1;
            self.spare.insert(chunk);
            if self.out < HUGE_AFTER_CHUNKS / 2 {
                return mem::take(&mut self.spare);
            }
            let first = chunk & !(HUGE - 1);
            let is_whole = self.spare.range(first..first + HUGE).count() == PARTS;
            if is_whole && self.spare.len() > PARTS {
                return (first..first + HUGE).step_by(CHUNK_BYTES).filter(|part| self.spare.remove(part)).collect();
            }
            let is_bound_passed = self.spare.len() > self.out / 8 + HUGE_AFTER_CHUNKS;
            // Two at a time, since the bound decreases as well.
            iter::from_fn(|| self.spare.pop_first()).take(2 * usize::from(is_bound_passed)).collect()
        }
    }

    /// Maps `len` bytes at any address.
    fn anywhere(len: usize) -> Option<NonNull<u8>> {
        // SAFETY: anonymous memory at an address that the kernel chooses, where nothing else is
        // mapped.
        let mapped = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        NonNull::new(mapped.ok()?.cast())
    }

    /// Memory for a chunk; `None` if the system has none.
    pub(in super::super) fn map() -> Option<NonNull<u8>> {
        let mut mapped = lock(&MAPPED);
        if let Some(address) = mapped.take() {
            return NonNull::new(with_exposed_provenance_mut(address));
        }
        let many = mapped.out > HUGE_AFTER_CHUNKS;
        // The lock is not held during the system call.
        drop(mapped);
        let of_huge = if many { first_of_huge() } else { None };
        let chunk = of_huge.or_else(|| aligned(CHUNK_BYTES));
        if chunk.is_none() {
            lock(&MAPPED).out -= 1;
        }
        chunk
    }

    /// The first chunk of a huge page; the others become spare. (If the kernel has no huge page,
    /// these are small pages.)
    fn first_of_huge() -> Option<NonNull<u8>> {
        let page = aligned(HUGE)?;
        // SAFETY: just mapped, and the advice changes no byte.
        let _ = unsafe { madvise(page.as_ptr().cast(), HUGE, Advice::LinuxHugepage) };
        lock(&MAPPED).add(page.as_ptr().expose_provenance());
        Some(page)
    }

    /// Maps `len` bytes at a multiple of `len`.
    fn aligned(len: usize) -> Option<NonNull<u8>> {
        // The kernel puts each mapping directly below the previous one, so most fit at once.
        let first = anywhere(len)?;
        if first.addr().get().is_multiple_of(len) {
            return Some(first);
        }
        // If an unmapping fails, here and below, the mapping remains, untouched and so without
        // memory. SAFETY: just mapped, and not shared.
        let _ = unsafe { munmap(first.as_ptr().cast(), len) };
        let twice = anywhere(2 * len)?;
        // From the last multiple on, `len` bytes are kept. If there are two multiples, these are
        // directly below the previous mapping.
        let behind = (twice.addr().get() + 2 * len) % len;
        let before = len - behind;
        // SAFETY: parts of the new mapping.
        unsafe {
            let kept = twice.add(before);
            let _ = munmap(twice.as_ptr().cast(), before);
            let _ = (behind > 0).then(|| munmap(kept.as_ptr().add(len).cast(), behind));
            Some(kept)
        }
    }

    /// Returns the memory of a chunk.
    ///
    /// # Safety
    /// It came from [`map`], and is not used any more.
    pub(in super::super) unsafe fn unmap(chunk: NonNull<u8>) {
        debug_assert!(chunk.addr().get().is_multiple_of(CHUNK_BYTES));
        let mut unneeded = lock(&MAPPED).put(chunk.as_ptr().expose_provenance());
        while let Some(first) = unneeded.pop_first() {
            let mut end = first + CHUNK_BYTES;
            // One page at a time.
            while !end.is_multiple_of(HUGE) && unneeded.remove(&end) {
                end += CHUNK_BYTES;
            }
            let (start, len) = (with_exposed_provenance_mut(first), end - first);
            // SAFETY: the caller's contract, or spare and so not in use.
            unsafe {
                if len < HUGE {
                    // It splits the huge page of which this is a part into small ones, which are
                    // freed with the mapping.
                    let _ = madvise(start, len, Advice::LinuxFree);
                }
                if munmap(start, len).is_err() {
                    // This fails for no mapping of this module. If it did, the memory would be
                    // reused as it is.
                    let _ = madvise(start, len, Advice::LinuxDontNeed);
                    lock(&MAPPED).spare.extend((first..end).step_by(CHUNK_BYTES));
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::{collections::BTreeMap, fs, path::Path};

        use super::*;
        use crate::allocator::tests::next;

        /// Whether huge pages were requested at this address.
        fn is_huge(address: usize) -> bool {
            let maps = fs::read_to_string("/proc/self/smaps").expect("/proc");
            let hex = |text: &str| usize::from_str_radix(text, 16).ok();
            let within = |line: &str| {
                let (start, end) = line.split(' ').next()?.split_once('-')?;
                Some((hex(start)?..hex(end)?).contains(&address))
            };
            let mut lines = maps.lines().skip_while(|line| within(line) != Some(true));
            let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
            flags.expect("a mapping").split(' ').any(|flag| flag == "hg")
        }

        /// Seen to fail: only small pages; a page whose other chunks are lost, or given out twice;
        /// no advice to the kernel.
        #[test]
        fn many_chunks_come_from_huge_pages() {
            let chunks: Vec<_> = (0..20 * PARTS).map(|_| map().expect("memory")).collect();
            let mut pages = BTreeMap::<usize, Vec<usize>>::new();
            for chunk in &chunks {
                let address = chunk.addr().get();
                assert!(address.is_multiple_of(CHUNK_BYTES));
                pages.entry(address / HUGE).or_default().push(address % HUGE);
            }
            for parts in pages.values_mut() {
                parts.sort_unstable();
                assert!(parts.is_sorted_by(|one, other| one < other), "a chunk is given out once");
            }
            // Other tests run at the same time, and have a few.
            let whole: Vec<_> = pages.iter().filter(|(_, parts)| parts.len() == PARTS).map(|(page, _)| page).collect();
            assert!(whole.len() >= 10, "{} whole pages", whole.len());
            if Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
                let huge = whole.iter().filter(|&&page| is_huge(page * HUGE)).count();
                assert!(huge >= 10, "{huge} of {} pages are huge", whole.len());
            } else {
                println!("skipped: this kernel has no huge pages");
            }
            // SAFETY: mapped above, not shared, and unmapped once.
            chunks.into_iter().for_each(|chunk| unsafe { unmap(chunk) });
        }

        /// Simulated memory.
        struct World {
            mapped: Mapped,
            /// How many chunks of each page are mapped. For a huge page: all.
            pages: BTreeMap<usize, usize>,
            lowest: usize,
            out: Vec<usize>,
            seed: u64,
        }

        impl World {
            fn new() -> Self {
                Self { mapped: Mapped::NONE, pages: BTreeMap::new(), lowest: 1 << 40, out: Vec::new(), seed: 9 }
            }

            fn take(&mut self) {
                let chunk = self.mapped.take().unwrap_or_else(|| {
                    self.lowest -= HUGE;
                    let is_huge = self.mapped.out > HUGE_AFTER_CHUNKS;
                    self.pages.insert(self.lowest, if is_huge { PARTS } else { 1 });
                    if is_huge {
                        self.mapped.add(self.lowest);
                    }
                    self.lowest
                });
                self.out.push(chunk);
            }

            fn put(&mut self, chunk: usize) -> usize {
                let gone = self.mapped.put(chunk);
                for chunk in &gone {
                    assert!(!self.out.contains(chunk) && !self.mapped.spare.contains(chunk));
                    *self.pages.get_mut(&(chunk & !(HUGE - 1))).expect("mapped") -= 1;
                }
                self.pages.retain(|_, parts| *parts > 0);
                assert_eq!(
                    self.pages.values().sum::<usize>(),
                    self.out.len() + self.mapped.spare.len(),
                    "none is lost"
                );
                gone.len()
            }

            fn put_any(&mut self) -> usize {
                let chunk = self.out.swap_remove(next(&mut self.seed) % self.out.len());
                self.put(chunk)
            }
        }

        /// Seen to fail: each chunk unmapped at once; spare chunks not reused; chunks that are not
        /// counted when they are put back.
        #[test]
        fn reused_chunks_leave_huge_pages_whole() {
            let mut world = World::new();
            (0..1024).for_each(|_| world.take());
            for _ in 0..6000 {
                world.put_any();
                world.take();
            }
            assert_eq!(world.mapped.out, 1024);
            let huge = world.pages.values().filter(|&&parts| parts == PARTS).count();
            assert!(huge > 1000 / PARTS, "{huge} of {}", world.pages.len());
        }

        /// Seen to fail: no bound on spare chunks, or one that is exceeded when few chunks are in
        /// use; spare chunks kept to the end.
        #[test]
        fn spare_chunks_are_bounded_and_unmapped() {
            let mut world = World::new();
            (0..1024).for_each(|_| world.take());
            while world.out.len() > HUGE_AFTER_CHUNKS / 2 {
                world.put_any();
                let (out, spare) = (world.out.len(), world.mapped.spare.len());
                assert!(spare <= out / 8 + HUGE_AFTER_CHUNKS + 1, "{out} are out, and {spare} spare");
            }
            world.put_any();
            assert_eq!(world.mapped.spare, BTreeSet::new());
            (1..HUGE_AFTER_CHUNKS / 2).for_each(|_| assert_eq!(world.put_any(), 1));
            assert_eq!((world.pages.len(), world.mapped.out), (0, 0));
        }

        /// Seen to fail: whole pages that are kept.
        #[test]
        fn whole_huge_pages_are_unmapped() {
            let mut world = World::new();
            (0..1024).for_each(|_| world.take());
            // The highest chunks, which are not from huge pages, are put last.
            world.out.sort_unstable_by(|one, other| other.cmp(one));
            while let Some(chunk) = world.out.pop_if(|_| world.mapped.out > HUGE_AFTER_CHUNKS) {
                let gone = world.put(chunk);
                assert!(gone == 0 || gone == PARTS, "{gone} chunks");
            }
            assert!(world.mapped.spare.len() <= 2 * PARTS, "{} are spare", world.mapped.spare.len());
        }

        #[test]
        fn chunk_is_aligned_to_its_size() {
            let chunks: Vec<_> = (0..20)
                .map(|n| {
                    // Mappings of other sizes between them, some of which would spoil the
                    // alignment.
                    let other = anywhere(4096 * (1 + n % 3)).expect("memory");
                    (map().expect("memory"), other, 4096 * (1 + n % 3))
                })
                .collect();
            for &(chunk, other, other_len) in &chunks {
                assert!(chunk.addr().get().is_multiple_of(CHUNK_BYTES));
                // SAFETY: mapped above, not shared, and unmapped once.
                unsafe {
                    chunk.write_bytes(1, CHUNK_BYTES);
                    unmap(chunk);
                    munmap(other.as_ptr().cast(), other_len).expect("unmapped");
                }
            }
        }
    }
}
