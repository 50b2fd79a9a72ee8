//! Damaged and hostile tar streams: whatever they say, reading them ends, and with an error or a
//! tree. `PANDO_SEED=N` repeats one stream.

#[path = "../../vfs/tests/support/splitmix.rs"]
mod splitmix;

use std::io::{self, Read};

use pando_memfs::{MemFs, MemOptions};
use pando_transfer::{Options, export_tar, import_tar};
use pando_vfs::{At, Walk, XattrFlags, fs::Fs};

const BLOCK: usize = 512;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        (splitmix::next(&mut self.0) % end as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.below(from.len())]
    }
}

fn tree() -> Fs {
    Fs::new(MemFs::new(MemOptions::new().size_bytes(4 << 20).inodes(1000))).unwrap()
}

/// A stream with each kind of entry, a long name, times, extended attributes and ACLs.
fn exported() -> Vec<u8> {
    let fs = tree();
    fs.create_dir_all("/dir/below").unwrap();
    fs.write("/dir/file", vec![7; 3000]).unwrap();
    fs.write(format!("/dir/{}", "x".repeat(200)), "long").unwrap();
    fs.hard_link("/dir/file", "/dir/link").unwrap();
    fs.symlink("file", "/dir/symlink").unwrap();
    fs.vfs().mknod(fs.context(), At::Cwd, "/dir/null", 0o020_666, 0x103).unwrap();
    let acl = [
        &[2, 0, 0, 0][..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 9, 0, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[16, 0, 4, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ];
    for (name, value) in [("user.name", &b"a\nvalue"[..]), ("system.posix_acl_access", &acl.concat())] {
        fs.vfs().setxattr(fs.context(), At::Cwd, "/dir/file", name, value, XattrFlags::empty(), Walk::empty()).unwrap();
    }
    let mut stream = Vec::new();
    export_tar(&fs, "/", &mut stream, &Options::new().privileged(true)).unwrap();
    stream
}

/// Files with holes, in each format that has them.
fn sparse() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let pairs = [("GNU.sparse.offset", &b"5"[..]), ("GNU.sparse.numbytes", b"3"), ("GNU.sparse.offset", b"9")];
    let formats: [&[(&str, &[u8])]; 3] = [
        &[&[("GNU.sparse.size", &b"20"[..])][..], &pairs, &[("GNU.sparse.numbytes", b"2")]].concat(),
        &[("GNU.sparse.realsize", b"20"), ("GNU.sparse.map", b"5,3,9,2"), ("GNU.sparse.name", b"other")],
        &[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"20")],
    ];
    for (number, records) in formats.into_iter().enumerate() {
        builder.append_pax_extensions(records.iter().copied()).unwrap();
        let mut data = b"abcde".to_vec();
        if number == 2 {
            data = [&b"2\n5\n3\n9\n2\n"[..], &[0; BLOCK - 10], &data].concat();
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, format!("file{number}"), &*data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Changes some bytes. Half of the headers get the right checksum again.
fn damage(stream: &mut Vec<u8>, random: &mut Random) {
    let words: [&[u8]; 12] = [
        b"\0",
        b"\n",
        b"9",
        b"18446744073709551615",
        b"-1",
        b"=",
        b" ",
        b"GNU.sparse.",
        b"../",
        b"x",
        b"\x80\xff",
        b"%3D",
    ];
    for _ in 0..1 + random.below(4) {
        let block = random.below(stream.len() / BLOCK) * BLOCK;
        // Sizes, kinds and the fields of sparse files, or any byte.
        let at = match random.below(4) {
            0 => block + 124 + random.below(12),
            1 => block + 156,
            2 => block + 386 + random.below(126),
            _ => block + random.below(BLOCK),
        };
        let word = random.pick(&words);
        match random.below(4) {
            0 => stream[at] ^= 1 << random.below(8),
            1 => stream[at] = random.below(256) as u8,
            2 => {
                let end = stream.len().min(at + word.len());
                stream[at..end].copy_from_slice(&word[..end - at]);
            }
            _ => stream[at] = b"01234567LKxgS"[random.below(13)],
        }
        if random.below(2) == 0 {
            let header = &mut stream[block..block + BLOCK];
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    if random.below(8) == 0 {
        stream.truncate(random.below(stream.len()));
    }
}

/// Gives a few bytes at a time.
struct Slowly<'a>(&'a [u8], usize);

impl Read for Slowly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len());
        self.0.read(&mut buffer[..count])
    }
}

#[test]
fn damaged_streams_end() {
    let whole = [exported(), sparse()];
    let options = Options::new().privileged(true);
    for stream in &whole {
        let fs = tree();
        import_tar(Slowly(stream, 7), &fs, "/", &options).unwrap();
        assert!(fs.walk("/").count() >= 3);
    }
    let only = pandofs_testkit::number("PANDO_SEED");
    let (mut refused, mut read) = (0, 0);
    for seed in only.map_or(0..3000, |seed| seed..seed + 1) {
        let mut random = Random(seed);
        let mut stream = whole[seed as usize % 2].clone();
        damage(&mut stream, &mut random);
        // Seen by the test harness if it panics or does not end.
        println!("PANDO_SEED={seed}");
        match import_tar(Slowly(&stream, 1 + random.below(5000)), &tree(), "/", &options) {
            Ok(_) => read += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(only.is_some() || refused > 500 && read > 100, "{refused} refused, {read} read");
}
