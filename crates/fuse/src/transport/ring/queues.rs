//! Which thread serves which queue. The kernel has a queue for each possible CPU, and sends a
//! request to the queue of the caller's CPU.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The queues of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    /// The queues that it serves.
    pub(super) queues: Vec<u16>,
    /// The CPU that it is bound to, which is that of its callers; none if it serves several CPUs.
    pub(super) cpu: Option<usize>,
}

/// So many threads of a mount are not too many, on a machine with many CPUs.
const THREADS_MOST: usize = 1024;
/// With fewer threads for each queue, few requests that wait would hold up all others.
const WAITING_LEAST: usize = 16;
/// Threads for a queue on whose CPU this process may not run, or which is not there.
const WAITING_ELSEWHERE: usize = 4;

/// Shares for requests that may wait: each queue has a thread for each of `waiting` requests, or
/// for fewer if there are many queues. None if there are too many queues.
pub(super) fn shares_for_waiting(waiting: usize) -> Option<Vec<Share>> {
    let (queues, allowed) = cpus()?;
    share_for_waiting(queues, &allowed, waiting)
}

fn share_for_waiting(queues: u16, allowed: &[u16], waiting: usize) -> Option<Vec<Share>> {
    let is_ours = |queue: &u16| allowed.contains(queue);
    let ours = (0..queues).filter(is_ours).count();
    let elsewhere = (usize::from(queues) - ours) * WAITING_ELSEWHERE;
    let here = (THREADS_MOST.checked_sub(elsewhere)? / ours.max(1)).min(waiting);
    let threads = |queue: u16| match is_ours(&queue) {
        true => vec![Share { queues: vec![queue], cpu: Some(queue.into()) }; here],
        false => vec![Share { queues: vec![queue], cpu: None }; WAITING_ELSEWHERE],
    };
    (here >= WAITING_LEAST.min(waiting)).then(|| (0..queues).flat_map(threads).collect())
}

/// The shares of at most `threads` threads; none if the number of possible CPUs cannot be
/// determined.
pub(super) fn shares(threads: usize) -> Option<Vec<Share>> {
    let (queues, allowed) = cpus()?;
    Some(share(queues, &allowed, threads))
}

/// The number of possible CPUs, and those on which this process may run.
fn cpus() -> Option<(u16, Vec<u16>)> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let allowed = sched_getaffinity(None).ok()?;
    let allowed = (0..CpuSet::MAX_CPU as u16).filter(|&cpu| allowed.is_set(cpu.into())).collect();
    Some((count(&possible)?, allowed))
}

/// The number of CPUs in a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Distributes `queues` queues. The queues of CPUs on which this process may run come first. A
/// thread that has exactly one of these is bound to its CPU.
fn share(queues: u16, allowed: &[u16], threads: usize) -> Vec<Share> {
    let ours: Vec<u16> = allowed.iter().copied().filter(|&queue| queue < queues).collect();
    let others = (0..queues).filter(|queue| !ours.contains(queue));
    let threads = threads.clamp(1, ours.len().max(1));
    let mut shares = vec![Share { queues: Vec::new(), cpu: None }; threads];
    for (number, queue) in ours.iter().copied().chain(others).enumerate() {
        shares[number % threads].queues.push(queue);
    }
    if threads == ours.len() {
        for share in &mut shares {
            share.cpu = share.queues.first().map(|&queue| queue.into());
        }
    }
    shares
}

#[cfg(test)]
mod tests;
