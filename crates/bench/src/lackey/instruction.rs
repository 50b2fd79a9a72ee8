//! Decodes as much of an x86-64 instruction as is needed to recognise atomic read-modify-writes.

/// Prefixes that may precede others: segments, sizes of operands and addresses, repetitions.
const OTHER_PREFIXES: [u8; 10] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3];
const LOCK: u8 = 0xf0;
/// Exchange instructions. They are atomic if one operand is in memory.
const XCHG: [u8; 2] = [0x86, 0x87];

/// Whether the instruction is an atomic read-modify-write. It also waits for all earlier writes.
/// That takes some 20 cycles, and many more if another core has the line.
pub(super) fn is_atomic_rmw(bytes: &[u8]) -> bool {
    let mut rest = bytes.iter().copied().skip_while(|byte| OTHER_PREFIXES.contains(byte));
    let is_rex = |byte: &u8| (0x40..0x50).contains(byte);
    match rest.next() {
        Some(LOCK) => true,
        Some(first) => {
            let opcode = if is_rex(&first) { rest.next() } else { Some(first) };
            let in_memory = |operands: u8| operands < 0xc0;
            opcode.is_some_and(|opcode| XCHG.contains(&opcode)) && rest.next().is_some_and(in_memory)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_read_modify_writes_are_recognised() {
        let locked: [&[u8]; 5] = [
            &[0xf0, 0x48, 0x0f, 0xb1, 0x0a],             // lock cmpxchg %rcx,(%rdx)
            &[0x66, 0xf0, 0x0f, 0xc1, 0x07],             // lock xadd %ax,(%rdi)
            &[0x87, 0x07],                               // xchg %eax,(%rdi)
            &[0x48, 0x87, 0x81, 0x80, 0x00, 0x00, 0x00], // xchg %rax,0x80(%rcx)
            &[0x41, 0x86, 0x06],                         // xchg %al,(%r14)
        ];
        let others: [&[u8]; 6] = [
            &[0x87, 0xc1],                   // xchg %eax,%ecx
            &[0x48, 0x0f, 0xb1, 0x0a],       // cmpxchg %rcx,(%rdx)
            &[0x48, 0x8b, 0x87, 0xf0, 0, 0], // mov 0xf0(%rdi),%rax
            &[0x90],                         // nop
            &[0xf3, 0x0f, 0x1e, 0xfa],       // endbr64
            &[],
        ];
        assert!(locked.into_iter().all(is_atomic_rmw));
        assert!(!others.into_iter().any(is_atomic_rmw));
    }
}
