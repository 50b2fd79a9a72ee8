use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::base::path::TreePath;

fn refusal(path: &Path) -> String {
    match DirTarget::new(path).open() {
        Err(Failure::Refused(why)) => why,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("{} was taken", path.display()),
    }
}

#[test]
fn foreign_directory_is_refused_and_unchanged() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let precious = temp.path().join("precious");
    fs::write(&precious, "data").expect("writing");
    assert!(refusal(temp.path()).contains("not empty"));
    // A marker does not make files of others ours.
    fs::write(temp.path().join(MARKER), "").expect("writing");
    assert!(refusal(temp.path()).contains("precious"));
    // Without a marker, an entry may have the tree's name by chance.
    fs::remove_file(temp.path().join(MARKER)).expect("removing");
    fs::rename(&precious, temp.path().join(TREE)).expect("renaming");
    assert!(refusal(temp.path()).contains(TREE));
    assert_eq!(fs::read_to_string(temp.path().join(TREE)).expect("still there"), "data");
}

#[test]
fn directory_writable_by_others_is_refused() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = temp.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let set_mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("chmod");
    for mode in [0o777, 0o770, 0o702] {
        set_mode(mode);
        let why = refusal(&dir);
        assert!(why.contains("chmod go-w") && why.contains(&format!("{mode:o}")), "{why}");
        assert_eq!(fs::read_dir(&dir).expect("it stays").count(), 0);
    }
    // There, no user can rename files of another.
    for mode in [0o1777, 0o755] {
        set_mode(mode);
        DirTarget::new(&dir).open().expect("it opens").close().expect("it closes");
    }
    let new = dir.join("new");
    let session = DirTarget::new(&new).open().expect("it opens");
    assert_eq!(fs::metadata(&new).expect("it is there").mode() & 0o777, 0o700);
    session.close().expect("it closes");
}

#[test]
fn directory_of_another_user_is_refused() {
    if !pandofs_testkit::is_root() {
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::chown(temp.path(), Some(65534), None).expect("chown");
    assert!(refusal(temp.path()).contains("belongs to another user (65534)"));
    assert_eq!(fs::read_dir(temp.path()).expect("it stays").count(), 0);
    // The same if it has a file that looks like our marker.
    fs::write(temp.path().join(MARKER), MARKER_TEXT).expect("writing");
    assert!(refusal(temp.path()).contains("belongs to another user (65534)"));
}

#[test]
fn link_in_place_of_tree_is_not_followed() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let [dir, precious] = ["dir", "precious"].map(|name| temp.path().join(name));
    fs::create_dir(&precious).expect("mkdir");
    let session = DirTarget::new(&dir).open().expect("it opens");
    fs::remove_dir(dir.join(TREE)).expect("rmdir");
    std::os::unix::fs::symlink(&precious, dir.join(TREE)).expect("a link");
    assert!(session.actor().is_err());
    session.close().expect("it closes");
    assert!(precious.exists() && !dir.exists());
}

#[test]
fn new_directory_is_removed_at_the_end() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let new = temp.path().join("new");
    let session = DirTarget::new(&new).open().expect("it opens");
    session.actor().expect("an actor").create(&TreePath::new("f")).expect("create");
    assert!(new.join(TREE).join("f").exists());
    drop(session);
    assert!(!new.exists());
    assert!(temp.path().exists());
}

#[test]
fn files_of_a_killed_run_are_removed() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    fs::write(temp.path().join(MARKER), MARKER_TEXT).expect("writing");
    fs::create_dir_all(temp.path().join(TREE).join("d")).expect("mkdir");
    let session = DirTarget::new(temp.path()).open().expect("it opens");
    assert!(!temp.path().join(TREE).join("d").exists());
    session.close().expect("it closes");
    assert_eq!(fs::read_dir(temp.path()).expect("it stays").count(), 0);
}

#[test]
fn directory_made_by_a_killed_run_is_removed() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let new = temp.path().join("new");
    let killed = DirTarget::new(&new).open().expect("it opens");
    let marker = fs::read(new.join(MARKER)).expect("a marker");
    killed.close().expect("it closes");
    // As if that run had been killed before it closed the session.
    fs::create_dir(&new).expect("mkdir");
    fs::write(new.join(MARKER), marker).expect("writing");
    DirTarget::new(&new).open().expect("it opens").close().expect("it closes");
    assert!(!new.exists());
}

#[test]
fn foreign_marker_is_unchanged() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (dir, precious) = (temp.path().join("dir"), temp.path().join("precious"));
    fs::create_dir_all(dir.join(TREE)).expect("mkdir");
    let marker = dir.join(MARKER);
    for text in ["data", "", &format!("{MARKER_TEXT}and more")] {
        fs::write(&marker, text).expect("writing");
        assert!(refusal(&dir).contains(MARKER));
        assert_eq!(fs::read_to_string(&marker).expect("still there"), text);
    }
    fs::remove_file(&marker).expect("removing");
    fs::write(&precious, MARKER_TEXT).expect("writing");
    std::os::unix::fs::symlink(&precious, &marker).expect("a link");
    assert!(refusal(&dir).contains(MARKER));
    assert!(marker.is_symlink() && precious.exists());
    fs::remove_file(&marker).expect("removing");
    fs::create_dir(&marker).expect("mkdir");
    assert!(refusal(&dir).contains(MARKER));
    assert!(dir.join(TREE).exists() && marker.exists());
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let session = DirTarget::new(temp.path()).open().expect("it opens");
    assert!(refusal(temp.path()).contains("in use"));
    session.close().expect("it closes");
}

#[test]
fn marker_is_closed_before_its_directory_is_removed() {
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    let temp = tempfile::tempdir().expect("a temporary directory");
    let new = temp.path().join("new");
    let session = DirTarget::new(&new).open().expect("it opens");
    let seen = init(CreateFlags::NONBLOCK).expect("inotify");
    add_watch(&seen, temp.path(), WatchFlags::DELETE).expect("where the directory is");
    add_watch(&seen, new.join(MARKER), WatchFlags::CLOSE_WRITE).expect("the marker");
    session.close().expect("it closes");
    let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
    let mut events = Reader::new(&seen, &mut buffer);
    let first = events.next().expect("an event").events();
    assert!(first.contains(ReadFlags::CLOSE_WRITE), "NFS has the file until then: {first:?}");
}

#[test]
fn new_marker_locked_by_another_run_is_removed() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (target, path) = (DirTarget::new(temp.path()), temp.path().join(MARKER));
    let marker = fs::File::create(&path).expect("a marker");
    let others = fs::File::open(&path).expect("it is there");
    rustix::fs::flock(&others, FlockOperation::LockExclusive).expect("a lock");
    for is_new in [false, true] {
        assert!(matches!(target.lock(&marker, &path, is_new), Err(Failure::Refused(_))));
        assert_eq!(path.exists(), !is_new);
    }
}

#[test]
fn existing_marker_is_opened_for_writing_as_nfs_requires() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    fs::write(temp.path().join(MARKER), MARKER_TEXT).expect("writing");
    let (marker, _) = DirTarget::new(temp.path()).mark(false).expect("it is ours");
    assert!(rustix::fs::fcntl_getfl(&marker).expect("its flags").contains(OFlags::RDWR), "flock(2)");
}

#[test]
fn errors_name_the_file() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().join("none").join("new");
    let failure = DirTarget::new(&path).open().err().expect("no parent");
    assert!(failure.to_string().contains("none/new"), "{failure}");
    let file = temp.path().join("file");
    fs::write(&file, "").expect("writing");
    let failure = DirTarget::new(&file).open().err().expect("not a directory");
    assert!(failure.to_string().contains("Not a directory"), "{failure}");
}
