use super::Opcode;

#[test]
fn opcodes_are_found_by_their_numbers() {
    for number in 0..100 {
        assert!(Opcode::from_number(number).is_none_or(|opcode| opcode as u32 == number));
    }
    assert_eq!((Opcode::from_number(1), Opcode::from_number(25)), (Some(Opcode::Lookup), None));
}
