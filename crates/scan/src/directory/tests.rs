//! Jobs in each state, made by hand, when their turn comes.

use std::iter;

use pando_records::PART_ENTRIES;

use super::*;
use crate::{
    Workers,
    kernel::meter::Cost,
    workers::{
        job::{Job, Task},
        order::JobOrder,
    },
};

/// A directory with a few files, and a scan of it by the caller alone.
fn scan() -> (tempfile::TempDir, Scan) {
    scan_of(20, Workers::Fixed(1))
}

fn scan_of(files: usize, workers: Workers) -> (tempfile::TempDir, Scan) {
    let temp = tempfile::tempdir().unwrap();
    (0..files).for_each(|number| std::fs::write(temp.path().join(format!("f{number}")), "").unwrap());
    let scan = Scan::open(temp.path(), &Options::new().workers(workers)).unwrap();
    (temp, scan)
}

/// A job that no thread knows.
fn job(scan: &Scan, names: Arc<Names>, order: JobOrder) -> Arc<Job> {
    Arc::new(Job::new(Task {
        dir: scan.dir.clone(),
        arena: scan.arena.clone(),
        asked: scan.asked,
        local: scan.local,
        entries: 0..names.len(),
        names,
        order,
        threads: 1,
    }))
}

fn answered(scan: &Scan) -> usize {
    scan.batch.iter().filter(|record| record.attr().is_some()).count()
}

#[test]
fn job_that_got_no_page_is_read_again() {
    let (_temp, mut scan) = scan();
    let names = scan.read_names(1);
    let job = job(&scan, names, JobOrder::Directory);
    let held: Vec<Part> = iter::from_fn(|| scan.arena.take_part()).collect();
    job.work();
    held.into_iter().for_each(|part| scan.arena.give_part(part));
    scan.jobs.push_back(Pending::Job(job));
    assert!(scan.advance().unwrap());
    assert_eq!((scan.batch.len(), answered(&scan)), (20, 20));
}

/// Answers in inode order lie scattered in directory order. Threads continue with smaller jobs, and
/// the caller does not do the rest alone.
#[test]
fn entries_without_pages_go_to_smaller_jobs() {
    const FILES: usize = 3 * PART_ENTRIES;
    let (_temp, mut scan) = scan_of(FILES, Workers::Fixed(2));
    let names = scan.read_names(FILES);
    let job = job(&scan, names, JobOrder::Inode);
    let mut held: Vec<Part> = iter::from_fn(|| scan.arena.take_part()).collect();
    scan.arena.give_part(held.pop().unwrap());
    job.work();
    held.into_iter().for_each(|part| scan.arena.give_part(part));
    scan.jobs.push_back(Pending::Job(job));
    let mut seen = 0;
    while scan.advance().unwrap() {
        assert!(!scan.is_scarce);
        assert!(scan.jobs.is_empty(), "another job would take pages from this one");
        assert!(scan.most >= PART_ENTRIES / 2);
        assert_eq!(answered(&scan), scan.batch.len());
        seen += scan.batch.len();
    }
    assert_eq!(seen, FILES);
}

/// A job that has no answers, since those before it held all pages, does not make the next ones
/// small.
#[test]
fn jobs_grow_again_when_there_are_pages() {
    const FILES: usize = 200;
    let (_temp, mut scan) = scan_of(FILES, Workers::Fixed(2));
    let names = scan.read_names(FILES);
    let job = job(&scan, names, JobOrder::Directory);
    let held: Vec<Part> = iter::from_fn(|| scan.arena.take_part()).collect();
    job.work();
    held.into_iter().for_each(|part| scan.arena.give_part(part));
    scan.jobs.push_back(Pending::Job(job));
    let mut batches = Vec::new();
    while scan.advance().unwrap() {
        assert!(!scan.is_scarce, "threads do it");
        assert_eq!(answered(&scan), scan.batch.len());
        batches.push(scan.batch.len());
    }
    assert_eq!(batches.iter().sum::<usize>(), FILES);
    assert!(batches.iter().any(|&entries| entries > 32), "{batches:?}");
    scan.most = usize::MAX - 1;
    scan.seek(0).unwrap();
    while scan.advance().unwrap() {}
    assert_eq!(scan.most, usize::MAX, "several jobs are in progress again");
}

#[test]
fn unfinished_jobs_of_dismissed_threads_are_dropped() {
    let (_temp, mut scan) = scan();
    for is_done in [true, true, false] {
        let names = scan.read_names(1);
        rustix::fs::seek(&scan.dir, SeekFrom::Start(0)).unwrap();
        let job = job(&scan, names, JobOrder::Directory);
        if is_done {
            job.work();
        }
        scan.jobs.push_back(Pending::Job(job));
    }
    for left in [2, 1, 0] {
        assert!(scan.advance().unwrap());
        assert_eq!((answered(&scan), scan.jobs.len()), (20, left));
        assert!(left == 0 || matches!(scan.jobs[left - 1], Pending::Dropped(_, 0)), "its entries are the caller's");
        assert!(left < 2 || matches!(scan.jobs[0], Pending::Job(_)), "what is done already is kept");
    }
}

#[test]
fn caller_alone_has_all_pages() {
    let (_temp, mut scan) = scan();
    let mut names = || {
        rustix::fs::seek(&scan.dir, SeekFrom::Start(0)).unwrap();
        scan.read_names(1)
    };
    let (dropped, later) = (names(), names());
    let job = job(&scan, later, JobOrder::Directory);
    job.work();
    scan.jobs.extend([Pending::Dropped(dropped, 0), Pending::Job(job)]);
    assert!(scan.advance().unwrap());
    assert_eq!(answered(&scan), 20);
    assert!(matches!(scan.jobs[0], Pending::Dropped(_, 0)), "its answers hold none");
}

fn free_pages(scan: &Scan) -> usize {
    let parts: Vec<Part> = iter::from_fn(|| scan.arena.take_part()).collect();
    let count = parts.len();
    parts.into_iter().for_each(|part| scan.arena.give_part(part));
    count
}

/// The waits of the last entries decide whether a thread reads ahead. The records are the same.
#[test]
fn names_that_were_read_ahead_are_reused() {
    const FILES: usize = 3 * PART_ENTRIES;
    let (_temp, mut scan) = scan_of(FILES, Workers::Auto);
    let pages = free_pages(&scan);
    for waited_ms in [50, 0] {
        scan.seek(0).unwrap();
        let cost = Cost { entries: 100_000, cpu_ns: 1, waited_ns: waited_ms * 1_000_000 };
        assert!(!scan.pool.concurrency.after_caller(cost), "half a microsecond each is worth no thread");
        scan.pool.concurrency.after_readahead(cost);
        assert_eq!(scan.pool.concurrency.reads_ahead(), waited_ms > 0);
        let mut seen = 0;
        while scan.advance().unwrap() {
            assert_eq!(answered(&scan), scan.batch.len());
            seen += scan.batch.len();
        }
        assert_eq!((seen, free_pages(&scan)), (FILES, pages));
        assert!(scan.readahead.is_none());
    }
}
