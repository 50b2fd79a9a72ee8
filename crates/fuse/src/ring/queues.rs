//! Which thread serves which queue. The kernel has a queue for each processor that there might be, and sends a request to the
//! queue of the processor that asks.

use rustix::thread::{CpuSet, sched_getaffinity};

/// What one thread does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    /// The queues it serves.
    pub(super) queues: Vec<u16>,
    /// The one processor on which it stays, next to those who ask; none if it has several to serve.
    pub(super) processor: Option<usize>,
}

/// Shares for at most so many threads; none if it cannot be found out how many processors there might be.
pub(super) fn shares(threads: usize) -> Option<Vec<Share>> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let allowed = sched_getaffinity(None).ok()?;
    let allowed: Vec<u16> = (0..CpuSet::MAX_CPU as u16).filter(|&cpu| allowed.is_set(cpu.into())).collect();
    Some(share(count(&possible)?, &allowed, threads))
}

/// How many processors a list of them has, as in `0-3,8`.
fn count(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Shares out `queues` queues. Those of processors on which we may run come first: a thread that gets but one of these stays there.
fn share(queues: u16, allowed: &[u16], threads: usize) -> Vec<Share> {
    let ours: Vec<u16> = allowed.iter().copied().filter(|&queue| queue < queues).collect();
    let others = (0..queues).filter(|queue| !ours.contains(queue));
    let threads = threads.clamp(1, ours.len().max(1));
    let mut shares = vec![Share { queues: Vec::new(), processor: None }; threads];
    for (number, queue) in ours.iter().copied().chain(others).enumerate() {
        shares[number % threads].queues.push(queue);
    }
    if threads == ours.len() {
        for share in &mut shares {
            share.processor = share.queues.first().map(|&queue| queue.into());
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        for (list, processors) in [("0\n", Some(1)), ("0-1\n", Some(2)), ("0-3,8,10-11", Some(7))] {
            assert_eq!(count(list), processors);
        }
        for list in ["", "x", "3-1", "0-99999", "0-65535"] {
            assert_eq!(count(list), None, "{list}");
        }
        assert!(shares(1).is_some_and(|shares| shares.len() == 1 && !shares[0].queues.is_empty()));
    }

    #[test]
    fn each_queue_has_one_thread() {
        let of = |queues: &[u16], processor| Share { queues: queues.to_vec(), processor };
        assert_eq!(share(2, &[0, 1], 2), [of(&[0], Some(0)), of(&[1], Some(1))]);
        assert_eq!(share(2, &[0, 1], 8), [of(&[0], Some(0)), of(&[1], Some(1))]);
        assert_eq!(share(4, &[0, 1, 2, 3], 2), [of(&[0, 2], None), of(&[1, 3], None)]);
        // In a container: two of five are ours, and who runs on the others asks as well.
        assert_eq!(share(5, &[1, 3], 2), [of(&[1, 0, 4], Some(1)), of(&[3, 2], Some(3))]);
        assert_eq!(share(2, &[5], 1), [of(&[0, 1], None)]);
    }
}
