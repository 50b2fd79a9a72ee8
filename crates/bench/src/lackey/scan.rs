//! Parses the output of lackey: a line for each instruction and for each memory access.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

/// A memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub address: u64,
    pub bytes: u64,
    pub reads: bool,
    pub writes: bool,
}

/// A line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The instruction at this address runs. The accesses that follow belong to it.
    Instruction(u64),
    /// The instruction reads, writes, or both.
    Access(Access),
}

/// Number of lines between two checks for cancellation: some milliseconds.
const LINES: u32 = 1 << 16;

/// Calls `each` for the events between the first two writes to `mark`, without the instructions
/// that write it. Ends early if `keep_on` returns false.
pub(super) fn scan(path: &Path, mark: u64, keep_on: &dyn Fn() -> bool, mut each: impl FnMut(Event)) -> io::Result<()> {
    let mut number = 0_u32;
    let mut lines = BufReader::with_capacity(1 << 16, File::open(path)?);
    let (mut line, mut marks) = (Vec::new(), 0);
    // An instruction is passed on only after the next line shows that it does not write the mark.
    let mut held = None;
    while lines.read_until(b'\n', &mut line)? > 0 {
        if number.is_multiple_of(LINES) && !keep_on() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        number = number.wrapping_add(1);
        let event = parse(&line);
        line.clear();
        let Some(event) = event else { continue };
        if let Event::Access(Access { address, writes: true, .. }) = event
            && address == mark
        {
            marks += 1;
            held = None;
            if marks == 2 {
                return Ok(());
            }
            continue;
        }
        if marks == 0 {
            continue;
        }
        held.take().into_iter().for_each(&mut each);
        match event {
            Event::Instruction(_) => held = Some(event),
            Event::Access(_) => each(event),
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the trace ends before the work does"))
}

/// Parses one line; none for other messages of valgrind.
fn parse(line: &[u8]) -> Option<Event> {
    let (kind, rest) = line.split_at_checked(3)?;
    let rest = std::str::from_utf8(rest).ok()?.trim_end();
    let (address, bytes) = rest.split_once(',')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let bytes = bytes.parse().ok()?;
    let access = |reads, writes| Some(Event::Access(Access { address, bytes, reads, writes }));
    match kind {
        b"I  " => Some(Event::Instruction(address)),
        b" L " => access(true, false),
        b" S " => access(false, true),
        b" M " => access(true, true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
I  04000000,3
 S 00001000,8
==12== something else
I  04000003,3
 M 00002000,8
I  04000006,2
 L 1ffe000ff8,16
 S 00001008,4
I  04000008,5
I  0400000d,3
 S 00002000,8
I  04000010,3
";

    fn events(mark: u64) -> io::Result<Vec<Event>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("1");
        std::fs::write(&path, TRACE)?;
        let mut events = Vec::new();
        scan(&path, mark, &|| true, |event| events.push(event)).map(|()| events)
    }

    #[test]
    fn events_between_the_marks_are_passed_on_without_the_marks() {
        let access = |address, bytes, reads, writes| Event::Access(Access { address, bytes, reads, writes });
        let expected = [
            Event::Instruction(0x0400_0006),
            access(0x1f_fe00_0ff8, 16, true, false),
            access(0x1008, 4, false, true),
            Event::Instruction(0x0400_0008),
        ];
        assert_eq!(events(0x2000).expect("two marks"), expected);
    }

    #[test]
    fn cancellation_ends_the_scan_of_a_long_trace() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("1");
        std::fs::write(&path, format!(" S 00002000,8\n{}", "I  04000000,3\n".repeat(3 * LINES as usize)))
            .expect("writing");
        let (asked, mut seen) = (std::cell::Cell::new(0), 0);
        let keep_on = || asked.replace(asked.get() + 1) < 2;
        let error = scan(&path, 0x2000, &keep_on, |_| seen += 1).expect_err("it was cancelled");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(asked.get() == 3 && seen < 2 * LINES, "{seen} after {} questions", asked.get());
    }

    #[test]
    fn missing_mark_is_an_error() {
        assert_eq!(events(0x1000).expect_err("one mark").kind(), io::ErrorKind::UnexpectedEof);
    }
}
