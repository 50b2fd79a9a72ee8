//! Where chunks come from, and go to: the system itself, where it is Linux.
//!
//! A general allocator gives memory back only from the end of its heap, so one long-lived allocation behind it keeps all
//! that was freed before: measured, 137 of 265 MiB after 500,000 directories were removed. A chunk that is mapped by itself
//! goes back by itself.
//!
//! Where there are many, chunks are cut from huge pages (if the kernel lets a program ask for one). The translation lookaside
//! buffer of a processor holds some thousand pages: with small ones, 30,000 files. And one page fault brings 2 MiB, where there
//! were 512.
//!
//! The kernel takes a huge page back as a whole. If a part is unmapped, it keeps the memory until that is short: 1,024 chunks
//! that were replaced at random, 6,000 times, held 720 MiB, of which 269 were shown to be the process's. So parts that are
//! free wait for the others of their page, and are used again first. If too many wait (an eighth of those in use), single ones
//! go back all the same, and the kernel is made to take their page apart.

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

    /// Memory for a chunk; none when the system has none.
    pub(in super::super) fn map() -> Option<NonNull<u8>> {
        // SAFETY: not empty.
        NonNull::new(unsafe { std::alloc::alloc(LAYOUT) })
    }

    /// Gives a chunk's memory back.
    ///
    /// # Safety
    /// It came from [`map`], and nobody uses it any more.
    pub(in super::super) unsafe fn unmap(chunk: NonNull<u8>) {
        // SAFETY: the caller's.
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
    /// Chunks of a huge page.
    const PARTS: usize = HUGE / CHUNK_BYTES;

    /// Chunks that are out, and the addresses of others.
    struct Mapped {
        out: usize,
        /// What nobody has: parts of huge pages, of which nothing has been used yet or that wait for the others; and what the
        /// kernel would not take back, since there are as many holes between mappings as it allows (vm.max_map_count), with no
        /// memory behind it.
        spare: BTreeSet<usize>,
    }

    static MAPPED: Mutex<Mapped> = Mutex::new(Mapped::NONE);

    impl Mapped {
        const NONE: Self = Self { out: 0, spare: BTreeSet::new() };

        /// One more goes out: a spare one, or none, if another is to be mapped.
        fn take(&mut self) -> Option<usize> {
            self.out += 1;
            // The highest: memory is mapped downwards, so it lies nearest to the first chunks, and what goes back is at an end.
            self.spare.pop_last()
        }

        /// A huge page begins there, whose first chunk goes out; the others are spare.
        fn add(&mut self, page: usize) {
            self.spare.extend((CHUNK_BYTES..HUGE).step_by(CHUNK_BYTES).map(|at| page + at));
        }

        /// One comes back. What the system is to have, ascending.
        fn give(&mut self, chunk: usize) -> BTreeSet<usize> {
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
            // The bound goes down as well.
            iter::from_fn(|| self.spare.pop_first()).take(2 * usize::from(is_bound_passed)).collect()
        }
    }

    /// Maps `len` bytes somewhere.
    fn anywhere(len: usize) -> Option<NonNull<u8>> {
        // SAFETY: anonymous memory at addresses that the kernel chooses: nobody has anything there.
        let mapped = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        NonNull::new(mapped.ok()?.cast())
    }

    /// Memory for a chunk. None when the system has none.
    pub(in super::super) fn map() -> Option<NonNull<u8>> {
        let mut mapped = lock(&MAPPED);
        if let Some(address) = mapped.take() {
            return NonNull::new(with_exposed_provenance_mut(address));
        }
        let many = mapped.out > HUGE_AFTER_CHUNKS;
        // Nobody waits for the kernel.
        drop(mapped);
        let of_huge = if many { first_of_huge() } else { None };
        let chunk = of_huge.or_else(|| aligned(CHUNK_BYTES));
        if chunk.is_none() {
            lock(&MAPPED).out -= 1;
        }
        chunk
    }

    /// A huge page's first chunk; the others are spare. (If the kernel has none, these are small pages.)
    fn first_of_huge() -> Option<NonNull<u8>> {
        let page = aligned(HUGE)?;
        // SAFETY: just mapped; what is advised changes no byte.
        let _ = unsafe { madvise(page.as_ptr().cast(), HUGE, Advice::LinuxHugepage) };
        lock(&MAPPED).add(page.as_ptr().expose_provenance());
        Some(page)
    }

    /// Maps `len` bytes at a multiple of as many.
    fn aligned(len: usize) -> Option<NonNull<u8>> {
        // The kernel puts one mapping right below the last, so most fit at once.
        let first = anywhere(len)?;
        if first.addr().get().is_multiple_of(len) {
            return Some(first);
        }
        // What cannot be unmapped, here and below, stays, untouched and so without memory.
        // SAFETY: just mapped, and told to nobody.
        let _ = unsafe { munmap(first.as_ptr().cast(), len) };
        let twice = anywhere(2 * len)?;
        // From the last multiple on, `len` bytes are kept: if there are two, those that lie right below what was mapped before.
        let behind = (twice.addr().get() + 2 * len) % len;
        let before = len - behind;
        // SAFETY: parts of what was just mapped.
        unsafe {
            let kept = twice.add(before);
            let _ = munmap(twice.as_ptr().cast(), before);
            let _ = (behind > 0).then(|| munmap(kept.as_ptr().add(len).cast(), behind));
            Some(kept)
        }
    }

    /// Gives a chunk's memory back.
    ///
    /// # Safety
    /// It came from [`map`], and nobody uses it any more.
    pub(in super::super) unsafe fn unmap(chunk: NonNull<u8>) {
        debug_assert!(chunk.addr().get().is_multiple_of(CHUNK_BYTES));
        let mut goes = lock(&MAPPED).give(chunk.as_ptr().expose_provenance());
        while let Some(first) = goes.pop_first() {
            let mut end = first + CHUNK_BYTES;
            // A page at a time.
            while !end.is_multiple_of(HUGE) && goes.remove(&end) {
                end += CHUNK_BYTES;
            }
            let (start, len) = (with_exposed_provenance_mut(first), end - first);
            // SAFETY: the caller's, or spare, and nobody's since it was given to us.
            unsafe {
                if len < HUGE {
                    // It splits a huge page of which this is a part, into small ones that go with the mapping.
                    let _ = madvise(start, len, Advice::LinuxFree);
                }
                if munmap(start, len).is_err() {
                    // Fails for no mapping of ours; if it did, the memory would be used again as it is.
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

        /// Whether huge pages were asked for at this address.
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

        /// Seen to fail: only small pages; a page whose other chunks are lost, or handed out twice; no advice to the
        /// kernel.
        #[test]
        fn many_chunks_are_cut_from_huge_pages() {
            let chunks: Vec<_> = (0..20 * PARTS).map(|_| map().expect("memory")).collect();
            let mut pages = BTreeMap::<usize, Vec<usize>>::new();
            for chunk in &chunks {
                let address = chunk.addr().get();
                assert!(address.is_multiple_of(CHUNK_BYTES));
                pages.entry(address / HUGE).or_default().push(address % HUGE);
            }
            for parts in pages.values_mut() {
                parts.sort_unstable();
                assert!(parts.is_sorted_by(|one, other| one < other), "a chunk is handed out once");
            }
            // Other tests run beside this one, and have a few.
            let whole: Vec<_> = pages.iter().filter(|(_, parts)| parts.len() == PARTS).map(|(page, _)| page).collect();
            assert!(whole.len() >= 10, "{} whole pages", whole.len());
            if Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
                let huge = whole.iter().filter(|&&page| is_huge(page * HUGE)).count();
                assert!(huge >= 10, "{huge} of {} pages are huge", whole.len());
            } else {
                println!("skipped: this kernel has no huge pages");
            }
            // SAFETY: mapped above, nobody else's, and given back once.
            chunks.into_iter().for_each(|chunk| unsafe { unmap(chunk) });
        }

        /// Pretended memory.
        struct World {
            mapped: Mapped,
            /// How many chunks of each page are mapped; all, if it is huge.
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

            fn give(&mut self, chunk: usize) -> usize {
                let gone = self.mapped.give(chunk);
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

            fn give_any(&mut self) -> usize {
                let chunk = self.out.swap_remove(next(&mut self.seed) % self.out.len());
                self.give(chunk)
            }
        }

        /// Seen to fail: each chunk unmapped at once; what is spare not used again; chunks that are not counted as they come
        /// back.
        #[test]
        fn chunks_that_come_and_go_leave_pages_whole() {
            let mut world = World::new();
            (0..1024).for_each(|_| world.take());
            for _ in 0..6000 {
                world.give_any();
                world.take();
            }
            assert_eq!(world.mapped.out, 1024);
            let huge = world.pages.values().filter(|&&parts| parts == PARTS).count();
            assert!(huge > 1000 / PARTS, "{huge} of {}", world.pages.len());
        }

        /// Seen to fail: no bound on what is spare, or one that is passed while few are left; what is spare kept to the end.
        #[test]
        fn what_is_used_no_more_goes_back() {
            let mut world = World::new();
            (0..1024).for_each(|_| world.take());
            while world.out.len() > HUGE_AFTER_CHUNKS / 2 {
                world.give_any();
                let (out, spare) = (world.out.len(), world.mapped.spare.len());
                assert!(spare <= out / 8 + HUGE_AFTER_CHUNKS + 1, "{out} are out, and {spare} spare");
            }
            world.give_any();
            assert_eq!(world.mapped.spare, BTreeSet::new());
            (1..HUGE_AFTER_CHUNKS / 2).for_each(|_| assert_eq!(world.give_any(), 1));
            assert_eq!((world.pages.len(), world.mapped.out), (0, 0));
        }

        /// Seen to fail: whole pages that are kept.
        #[test]
        fn pages_go_back_whole_if_they_can() {
            let mut world = World::new();
            (0..1024).for_each(|_| world.take());
            // The highest stay, which are no huge pages.
            world.out.sort_unstable_by(|one, other| other.cmp(one));
            while let Some(chunk) = world.out.pop_if(|_| world.mapped.out > HUGE_AFTER_CHUNKS) {
                let gone = world.give(chunk);
                assert!(gone == 0 || gone == PARTS, "{gone} chunks");
            }
            assert!(world.mapped.spare.len() <= 2 * PARTS, "{} are spare", world.mapped.spare.len());
        }

        #[test]
        fn a_chunk_lies_at_a_multiple_of_its_size() {
            let chunks: Vec<_> = (0..20)
                .map(|n| {
                    // Mappings of others between them, of which some would spoil the alignment.
                    let other = anywhere(4096 * (1 + n % 3)).expect("memory");
                    (map().expect("memory"), other, 4096 * (1 + n % 3))
                })
                .collect();
            for &(chunk, other, other_len) in &chunks {
                assert!(chunk.addr().get().is_multiple_of(CHUNK_BYTES));
                // SAFETY: mapped above, ours alone, and given back once.
                unsafe {
                    chunk.write_bytes(1, CHUNK_BYTES);
                    unmap(chunk);
                    munmap(other.as_ptr().cast(), other_len).expect("unmapped");
                }
            }
        }
    }
}
