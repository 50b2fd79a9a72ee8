//! A model of the ring. It has been seen to fail on the bugs that its comment names.

use super::*;
use loom::thread;

/// Not all records fit at a time: words are overwritten while the reader reads, and records are
/// lost. The reader gets complete records, in order, and all that were not lost. Seen to fail:
/// Relaxed in the store of `written`, or in its load; a record taken for one that fits although it
/// needs one word more; Relaxed in the store or the load of `ended`. The model cannot show why
/// `read` is stored with Release and loaded with Acquire: that needs a load that sees a store which
/// comes after it, and loom has no such executions.
#[test]
fn reader_gets_whole_records_in_order() {
    // One word, or two: after a record of two words and its length, one word is left.
    let words_of = |n: u64| 1 + n as usize % 2;
    crate::reclaim::model::check(move || {
        let (mut writer, mut reader) = ring(4);
        let writes = thread::spawn(move || {
            let mut push = |n: u64| writer.push(words_of(n), |record| (0..words_of(n)).for_each(|_| record.word(n)));
            (1..=4_u64).filter(|&n| push(n)).collect::<Vec<_>>()
        });
        let mut found = Vec::new();
        let mut words = Vec::new();
        let mut take = |reader: &mut RingReader| {
            if reader.pop(&mut words) {
                let n = words[0];
                assert_eq!(words, vec![n; words_of(n)], "words of several records");
                found.push(n);
            }
        };
        (0..3).for_each(|_| take(&mut reader));
        // If the writer has ended, the records found after this are all.
        let ended = reader.has_ended();
        (0..4).for_each(|_| take(&mut reader));
        let pushed = writes.join().expect("ends");
        assert!(reader.has_ended());
        if !ended {
            (0..4).for_each(|_| take(&mut reader));
        }
        assert_eq!(found, pushed);
        assert_eq!(reader.lost(), 4 - pushed.len() as u64);
    });
}
