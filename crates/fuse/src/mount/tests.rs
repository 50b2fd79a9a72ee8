use std::io::IoSlice;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::*;

#[test]
fn suid_and_dev_are_off_by_default() {
    let plain = MountOptions::default();
    assert_eq!(flags(&plain), MountFlags::NOSUID | MountFlags::NODEV);
    assert_eq!(helper_words(&plain), "fsname=pandofs,subtype=pandofs,default_permissions,nosuid,nodev");
    let asked = MountOptions {
        suid: true,
        dev: true,
        read_only: true,
        allow_other: true,
        no_dir_atime: true,
        lazy_time: true,
        no_symfollow: true,
        max_read: Some(8192),
        source: "a,b\\c".into(),
        ..MountOptions::default()
    };
    let unknown_to_helper = MountFlags::NODIRATIME | MountFlags::LAZYTIME | MountFlags::NOSYMFOLLOW;
    assert_eq!(flags(&asked), MountFlags::RDONLY | unknown_to_helper);
    let words = helper_words(&asked);
    assert_eq!(words, "fsname=a\\,b\\\\c,subtype=pandofs,default_permissions,allow_other,max_read=8192,ro");
}

#[test]
fn descriptor_is_received_over_socket() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let descriptors = [std::os::fd::AsFd::as_fd(&reader)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&theirs, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty()).unwrap();
    let received = receive(&ours).unwrap().expect("a descriptor");
    rustix::io::write(&writer, b"through").unwrap();
    let mut text = [0; 8];
    assert_eq!(rustix::io::read(&received, &mut text), Ok(7));
    drop(theirs);
    assert!(receive(&ours).unwrap().is_none(), "closed");
}
