use zerocopy::IntoBytes;

use super::{super::abi::RenameIn, *};

fn header(len: usize) -> InHeader {
    let len = u32::try_from(len).unwrap();
    InHeader { len, opcode: 12, unique: 2, node: 1, ..InHeader::default() }
}

#[test]
fn whole_and_split_requests_parse_alike() {
    let rename = RenameIn { new_dir: 7 };
    let names = b"old\0new\0";
    let whole = [header(40 + 8 + names.len()).as_bytes(), rename.as_bytes(), names].concat();
    let mut first = rename.as_bytes().to_vec();
    first.resize(128, 0xff);
    for request in [Request::whole(&whole).unwrap(), Request::in_parts(header(56), &first, names)] {
        let mut args = request.args;
        assert_eq!(args.structure::<RenameIn>().unwrap().new_dir, 7);
        assert_eq!((args.name(), args.name()), (Ok(&b"old"[..]), Ok(&b"new"[..])));
        assert_eq!((args.name(), args.data(0), args.data(1)), (Err(Error::Invalid), Ok(&b""[..]), Err(Error::Invalid)));
    }
    // An operation without a structure.
    let mut args = Request::in_parts(header(44), &first, b"old\0").args;
    assert_eq!(args.name(), Ok(&b"old"[..]));
}

#[test]
fn truncated_requests_are_refused() {
    for len in [0, 39, 41, 4000] {
        let bytes = header(len).as_bytes().to_vec();
        assert_eq!(Request::whole(&bytes).err(), Some(Error::Invalid), "{len}");
    }
    assert_eq!(Request::whole(&[0; 39]).err(), Some(Error::Invalid));
    let bytes = header(40).as_bytes().to_vec();
    let mut args = Request::whole(&bytes).unwrap().args;
    assert_eq!(args.structure::<RenameIn>().err(), Some(Error::Invalid));
    let bytes = [header(43).as_bytes(), b"abc"].concat();
    assert_eq!(Request::whole(&bytes).unwrap().args.name(), Err(Error::Invalid), "no end");
}
