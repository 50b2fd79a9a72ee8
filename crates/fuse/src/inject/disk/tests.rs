use super::*;

fn read(node: u64, offset: u64, len: u64) -> ReadAt {
    ReadAt { node, offset, len, file_size: 1_000_000 }
}

#[test]
fn seek_time_grows_with_distance() {
    let mut disk = Disk::new(Duration::from_millis(8));
    assert_eq!(disk.seek(&read(1, 0, 1000)).as_micros(), 8000, "from another file");
    assert_eq!(disk.seek(&read(1, 1000, 4000)).as_micros(), 0, "where the last read ended");
    assert_eq!(disk.seek(&read(1, 255_000, 5000)).as_micros(), 4000, "a quarter of the distance, half of the time");
    assert_eq!(disk.seek(&read(1, 250_000, 10_000)).as_micros(), 800, "backwards too");
    assert_eq!(disk.seek(&read(2, 260_000, 1)).as_micros(), 8000);
    let beyond = ReadAt { node: 2, offset: u64::MAX, len: u64::MAX, file_size: 0 };
    assert_eq!(disk.seek(&beyond).as_micros(), 8000, "never more than the full stroke");
}
