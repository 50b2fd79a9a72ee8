//! Where chunks come from, and go to: the system itself, where it is Linux.
//!
//! A general allocator gives memory back only from the end of its heap, so one long-lived allocation behind it keeps all
//! that was freed before: measured, 137 of 265 MiB after 500,000 directories were removed. A chunk that is mapped by itself
//! goes back by itself.
//!
//! Where there are many, chunks are cut from huge pages (if the kernel lets a program ask for one): a processor keeps some
//! thousand addresses of pages at hand, which is as many as small pages for 30,000 files; and it is one interrupt that fetches
//! 2 MiB, not 512. A chunk of a huge page goes back like any other; but the kernel takes such a page apart only when memory is
//! short, or the last chunk of it has gone.

#[cfg(any(not(target_os = "linux"), miri, loom))]
pub(super) use self::elsewhere::{map, unmap};
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
pub(super) use self::linux::{map, unmap};

#[cfg(any(not(target_os = "linux"), miri, loom))]
mod elsewhere {
    use std::{alloc::Layout, ptr::NonNull};

    /// Memory for a chunk; none when the system has none.
    pub(in super::super) fn map(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: not empty.
        NonNull::new(unsafe { std::alloc::alloc(layout) })
    }

    /// Gives a chunk's memory back.
    ///
    /// # Safety
    /// It came from [`map`] with this layout, and nobody uses it any more.
    pub(in super::super) unsafe fn unmap(chunk: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { std::alloc::dealloc(chunk.as_ptr(), layout) };
    }
}

#[cfg(all(target_os = "linux", not(any(miri, loom))))]
mod linux {
    use std::{
        alloc::Layout,
        mem,
        ptr::{NonNull, null_mut, with_exposed_provenance_mut},
        sync::Mutex,
    };

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use crate::facade::lock;

    const HUGE: usize = 2 << 20;
    /// From so many chunks on, the next ones are cut from huge pages.
    const MANY: usize = 16;

    /// Chunks that are out, and the addresses of others.
    struct Mapped {
        out: usize,
        /// What nobody has of a huge page; and what the kernel would not take back, since there are as many holes between
        /// mappings as it allows (vm.max_map_count), with no memory behind it.
        spare: Vec<usize>,
    }

    static MAPPED: Mutex<Mapped> = Mutex::new(Mapped { out: 0, spare: Vec::new() });

    /// Maps `len` bytes somewhere.
    fn anywhere(len: usize) -> Option<NonNull<u8>> {
        // SAFETY: anonymous memory at addresses that the kernel chooses: nobody has anything there.
        let mapped = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        NonNull::new(mapped.ok()?.cast())
    }

    /// Memory for a chunk, zeros: `layout`'s bytes at a multiple of as many. None when the system has none.
    pub(in super::super) fn map(layout: Layout) -> Option<NonNull<u8>> {
        let len = layout.size();
        debug_assert_eq!(len, layout.align());
        let mut mapped = lock(&MAPPED);
        mapped.out += 1;
        if let Some(address) = mapped.spare.pop() {
            return NonNull::new(with_exposed_provenance_mut(address));
        }
        let many = mapped.out > MANY;
        // Nobody waits for the kernel.
        drop(mapped);
        let of_huge = if many { first_of_huge(len) } else { None };
        let chunk = of_huge.or_else(|| aligned(len));
        if chunk.is_none() {
            lock(&MAPPED).out -= 1;
        }
        chunk
    }

    /// A huge page's first `len` bytes; the others are spare. (If the kernel has none, these are small pages.)
    fn first_of_huge(len: usize) -> Option<NonNull<u8>> {
        let page = aligned(HUGE)?;
        // SAFETY: just mapped; what is advised changes no byte.
        let _ = unsafe { madvise(page.as_ptr().cast(), HUGE, Advice::LinuxHugepage) };
        let start = page.as_ptr().expose_provenance();
        lock(&MAPPED).spare.extend((len..HUGE).step_by(len).rev().map(|at| start + at));
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
    /// It came from [`map`] with this layout, and nobody uses it any more.
    pub(in super::super) unsafe fn unmap(chunk: NonNull<u8>, layout: Layout) {
        debug_assert!(chunk.addr().get().is_multiple_of(layout.align()));
        let mut mapped = lock(&MAPPED);
        mapped.out -= 1;
        let spare = if mapped.out < MANY / 2 { mem::take(&mut mapped.spare) } else { Vec::new() };
        drop(mapped);
        for start in spare.into_iter().map(with_exposed_provenance_mut).chain([chunk.as_ptr()]) {
            // SAFETY: the caller's, or spare, and nobody's since it was taken.
            unsafe { unmap_or_spare(start, layout.size()) };
        }
    }

    /// # Safety
    /// A chunk that nobody uses.
    unsafe fn unmap_or_spare(chunk: *mut u8, len: usize) {
        // SAFETY: the caller's.
        unsafe {
            if munmap(chunk.cast(), len).is_err() {
                // Fails for no mapping of ours; if it did, the memory would be used again as it is.
                let _ = madvise(chunk.cast(), len, Advice::LinuxDontNeed);
                lock(&MAPPED).spare.push(chunk.expose_provenance());
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::{collections::BTreeMap, fs, path::Path};

        use super::*;

        const CHUNK: usize = 256 << 10;
        const LAYOUT: Layout = match Layout::from_size_align(CHUNK, CHUNK) {
            Ok(layout) => layout,
            Err(_) => unreachable!(),
        };

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
            let chunks: Vec<_> = (0..20 * HUGE / CHUNK).map(|_| map(LAYOUT).expect("memory")).collect();
            let mut pages = BTreeMap::<usize, Vec<usize>>::new();
            for chunk in &chunks {
                let address = chunk.addr().get();
                assert!(address.is_multiple_of(CHUNK));
                pages.entry(address / HUGE).or_default().push(address % HUGE);
            }
            for parts in pages.values_mut() {
                parts.sort_unstable();
                assert!(parts.is_sorted_by(|one, other| one < other), "a chunk is handed out once");
            }
            // Other tests run beside this one, and have a few.
            let whole: Vec<_> =
                pages.iter().filter(|(_, parts)| parts.len() == HUGE / CHUNK).map(|(page, _)| page).collect();
            assert!(whole.len() >= 10, "{} whole pages", whole.len());
            if Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
                let huge = whole.iter().filter(|&&page| is_huge(page * HUGE)).count();
                assert!(huge >= 10, "{huge} of {} pages are huge", whole.len());
            } else {
                println!("skipped: this kernel has no huge pages");
            }
            // SAFETY: mapped above, nobody else's, and given back once.
            chunks.into_iter().for_each(|chunk| unsafe { unmap(chunk, LAYOUT) });
        }

        #[test]
        fn a_chunk_lies_at_a_multiple_of_its_size_and_is_empty() {
            let chunks: Vec<_> = (0..20)
                .map(|n| {
                    // Mappings of others between them, of which some would spoil the alignment.
                    let other = anywhere(4096 * (1 + n % 3)).expect("memory");
                    (map(LAYOUT).expect("memory"), other, 4096 * (1 + n % 3))
                })
                .collect();
            for &(chunk, other, other_len) in &chunks {
                assert!(chunk.addr().get().is_multiple_of(CHUNK));
                // SAFETY: mapped above, ours alone, and given back once.
                unsafe {
                    let bytes = std::slice::from_raw_parts_mut(chunk.as_ptr(), CHUNK);
                    assert!(bytes.iter().all(|&byte| byte == 0));
                    bytes.fill(1);
                    unmap(chunk, LAYOUT);
                    munmap(other.as_ptr().cast(), other_len).expect("unmapped");
                }
            }
        }
    }
}
