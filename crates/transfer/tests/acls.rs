//! Copies of files with POSIX ACLs, into directories that give ACLs to new entries.

#[path = "../../vfs/tests/support/acl.rs"]
mod acl;

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use acl::{ACCESS, DEFAULT, access_list, acl};
use pando_memfs::{MemFs, MemOptions};
use pando_transfer::{Options, copy_dir, export_dir, export_tar, import_dir, import_tar, unpack_tar};
use pando_vfs::{At, Walk, XattrFlags, fs::Fs};

/// The permission bits and the two ACLs of each entry that is no symbolic link.
type Facts = BTreeMap<String, (u32, Option<Vec<u8>>, Option<Vec<u8>>)>;

fn set(fs: &Fs, path: &str, name: &str, value: &[u8]) {
    fs.vfs().setxattr(fs.context(), At::Cwd, path, name, value, XattrFlags::empty(), Walk::empty()).unwrap();
}

/// A tree whose root gives ACLs to new entries.
fn target() -> Fs {
    let fs = Fs::new(MemFs::new(MemOptions::new())).unwrap();
    set(&fs, "/", DEFAULT, &acl(0o770, 1007, 7));
    fs
}

/// Files with ACLs and files without, in directories that give ACLs and in others.
fn source() -> Fs {
    let fs = Fs::new(MemFs::new(MemOptions::new())).unwrap();
    for dir in ["/gives", "/gives/takes-none", "/plain"] {
        fs.create_dir(dir).unwrap();
        for (name, mode) in [("none", 0o640), ("some", 0o604), ("setgid", 0o2755)] {
            let path = format!("{dir}/{name}");
            fs.write(&path, name).unwrap();
            fs.set_permissions(&path, mode).unwrap();
        }
        set(&fs, &format!("{dir}/some"), ACCESS, &access_list(1003, [6, 7, 4, 5, 1]));
        fs.vfs().mknod(fs.context(), At::Cwd, format!("{dir}/pipe"), 0o010_620, 0).unwrap();
        fs.symlink("some", format!("{dir}/link")).unwrap();
    }
    set(&fs, "/gives", DEFAULT, &acl(0o751, 1004, 5));
    set(&fs, "/gives", ACCESS, &acl(0o750, 1005, 1));
    fs
}

fn facts(fs: &Fs) -> Facts {
    let of = |path: &str| {
        let value = |name| fs.vfs().getxattr(fs.context(), At::Cwd, path, name, Walk::empty()).ok();
        (fs.metadata(path).unwrap().mode, value(ACCESS), value(DEFAULT))
    };
    let paths = fs.walk("/").map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    paths.filter(|path| !path.ends_with("link")).map(|path| (path.clone(), of(&path))).collect()
}

#[test]
fn privileged_copy_has_the_acls_of_its_source() {
    let (source, privileged) = (source(), Options::new().privileged(true));
    let mut archive = Vec::new();
    export_tar(&source, "/", &mut archive, &privileged).unwrap();
    let copy = target();
    import_tar(archive.as_slice(), &copy, "/", &privileged).unwrap();
    assert_eq!(facts(&copy), facts(&source));
    assert!(facts(&source)["/gives"].2.is_some() && facts(&source)["/gives/some"].1.is_some());

    // As tar without --acls.
    let copy = target();
    import_tar(archive.as_slice(), &copy, "/", &Options::new()).unwrap();
    let kept = |path: &str| facts(&copy)[path].clone();
    assert_eq!(kept("/plain/none").0, 0o640);
    assert!(kept("/plain/none").1.is_some() && kept("/plain").2.is_some());
}

/// Also by GNU tar, in both directions.
#[test]
fn acls_survive_a_directory_of_the_host() {
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let dir = |name: &str| {
        let dir = temp.path().join(name);
        fs::create_dir(&dir).unwrap();
        let value = acl(0o770, 1007, 7);
        rustix::fs::setxattr(&dir, DEFAULT, &value, rustix::fs::XattrFlags::empty()).map(|()| dir)
    };
    if !pandofs_testkit::is_root() || !pandofs_testkit::has(&["tar"]) {
        return;
    }
    let Ok(exported) = dir("exported") else { return pandofs_testkit::skipped("no ACLs in the temporary directory") };
    let (source, privileged) = (source(), Options::new().privileged(true));
    let expected = facts(&source);
    let same = |path: &Path| {
        for (name, (mode, access, default)) in &expected {
            let path = path.join(name.trim_start_matches('/'));
            let value = |name| {
                let mut value = [0; 100];
                rustix::fs::lgetxattr(&path, name, &mut value[..]).ok().map(|len| value[..len].to_vec())
            };
            let found = (fs::metadata(&path).unwrap().mode() & 0o7777, value(ACCESS), value(DEFAULT));
            assert_eq!(found, (*mode, access.clone(), default.clone()), "{path:?}");
        }
    };
    export_dir(&source, "/", &exported, &privileged).unwrap();
    same(&exported);
    let copied = dir("copied").unwrap();
    copy_dir(&exported, &copied, &privileged).unwrap();
    same(&copied);
    let back = target();
    import_dir(&copied, &back, "/", &privileged).unwrap();
    assert_eq!(facts(&back), expected);

    let mut archive = Vec::new();
    export_tar(&source, "/", &mut archive, &privileged).unwrap();
    let [unpacked, by_tar] = ["unpacked", "by tar"].map(|name| dir(name).unwrap());
    unpack_tar(archive.as_slice(), &unpacked, &privileged).unwrap();
    same(&unpacked);
    let path = temp.path().join("archive.tar");
    fs::write(&path, archive).unwrap();
    let tar = |args: &[&str]| {
        let output = Command::new("tar").args(["--acls", "--numeric-owner"]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    tar(&["-xpf", path.to_str().unwrap(), "-C", by_tar.to_str().unwrap()]);
    same(&by_tar);
    let archive = tar(&["-cf", "-", "-C", by_tar.to_str().unwrap(), "."]);
    let back = target();
    import_tar(archive.as_slice(), &back, "/", &privileged).unwrap();
    assert_eq!(facts(&back), expected);
}

/// A stream with an ACL in this text.
fn stream(text: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("SCHILY.acl.access", text.as_bytes())]).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    builder.append_data(&mut header, "file", &[][..]).unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn names_in_a_stream_are_those_of_this_machine() {
    let options = Options::new().privileged(true);
    let import = |text: &str, options| {
        let fs = target();
        import_tar(stream(text).as_slice(), &fs, "/", options).map(|_| facts(&fs)["/file"].1.clone())
    };
    let text = |name| format!("user::rw-\nuser:{name}:rwx\ngroup::r--\nmask::r--\nother::r--\n");
    assert_eq!(import(&text("root"), &options).unwrap(), Some(access_list(0, [6, 7, 4, 4, 4])));
    let unknown = import(&text("no such user"), &options).unwrap_err();
    let message = "file: an ACL of the tar stream names the user no such user, which this machine lacks; without privileges no ACLs are copied";
    assert_eq!(unknown.to_string(), message);
    let malformed = import("user::rw-", &options).unwrap_err();
    assert_eq!(malformed.to_string(), r#"file: the tar stream has a malformed ACL: "user::rw-""#);
    // ACLs are not copied then.
    assert!(import(&text("no such user"), &Options::new()).is_ok());
}
