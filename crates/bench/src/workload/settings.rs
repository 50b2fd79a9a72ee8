//! Settings of workloads.

/// A numeric setting of a workload.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) what: &'static str,
}

/// The values of a workload's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings(pub(super) Vec<(&'static str, u64)>);

impl Settings {
    /// # Panics
    /// If the workload has no such key. Only its own definition reads its keys.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(key, _)| *key == name).expect("a key of this workload").1
    }
}
