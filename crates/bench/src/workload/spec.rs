//! Parsing of workload names: `NAME`, or `NAME:KEY=VALUE,...`.

use std::str::FromStr;

use super::{
    Pace, Workload,
    limited::Limited,
    registry::{Definition, GROUPS, WORKLOADS},
    settings::{Key, Settings},
};

/// The setting that all endless workloads have.
const STEPS: &str = "steps";

/// A workload as named on the command line.
#[derive(Debug, Clone)]
pub struct WorkloadSpec {
    name: String,
    definition: &'static Definition,
    settings: Settings,
    /// Operations of each worker in a round, if given.
    steps: Option<u64>,
}

impl WorkloadSpec {
    /// As named on the command line.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn workload(&self) -> Box<dyn Workload> {
        let inner = (self.definition.make)(&self.settings);
        match self.steps {
            Some(ops) => Box::new(Limited { inner, ops }),
            None => inner,
        }
    }
}

/// The meaning of a name on the command line: one workload, or a group.
#[derive(Debug, Clone)]
pub struct Named(Vec<WorkloadSpec>);

/// All workloads that the names stand for, in order.
pub(crate) fn parse_all(named: &[Named]) -> Vec<WorkloadSpec> {
    named.iter().flat_map(|named| named.0.iter().cloned()).collect()
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = text.split_once(':').map_or((text, ""), |(name, settings)| (name, settings));
        let parts = match GROUPS.iter().find(|group| group.0 == name) {
            Some((_, parts, _)) => parts.to_vec(),
            None => vec![name],
        };
        let suffix = &text[name.len()..];
        parts.into_iter().map(|part| one(part, settings, suffix)).collect::<Result<_, _>>().map(Self)
    }
}

fn one(name: &str, settings: &str, suffix: &str) -> Result<WorkloadSpec, String> {
    let definition = WORKLOADS.iter().find(|definition| definition.name == name).ok_or_else(|| {
        let names: Vec<&str> =
            WORKLOADS.iter().map(|definition| definition.name).chain(GROUPS.iter().map(|group| group.0)).collect();
        format!("no such workload; the workloads are: {}", names.join(", "))
    })?;
    let mut values: Vec<(&'static str, u64)> = definition.keys.iter().map(|key| (key.name, key.default)).collect();
    let mut steps = None;
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting.split_once('=').ok_or_else(|| format!("`{setting}` is not KEY=VALUE"))?;
        if key == STEPS {
            steps = Some(count(key, value, (1, u64::MAX))?);
            continue;
        }
        let place = definition.keys.iter().position(|known| known.name == key).ok_or_else(|| {
            let keys: Vec<&str> = definition.keys.iter().map(|key| key.name).collect();
            match keys.is_empty() {
                true => format!("{name} has no setting `{key}`; its only setting is {STEPS}"),
                false => format!("{name} has no setting `{key}`; it has: {}, {STEPS}", keys.join(", ")),
            }
        })?;
        let Key { min, max, .. } = definition.keys[place];
        values[place].1 = count(key, value, (min, max))?;
    }
    let spec = WorkloadSpec { name: format!("{name}{suffix}"), definition, settings: Settings(values), steps };
    if steps.is_some() {
        let whole = (definition.make)(&spec.settings);
        if whole.pace() != Pace::Timed || whole.helpers() > 0 {
            return Err(format!(
                "{name} has no setting {STEPS}: its rounds already end, or it has threads that disturb the workers"
            ));
        }
    }
    Ok(spec)
}

fn count(key: &str, value: &str, (min, max): (u64, u64)) -> Result<u64, String> {
    let count = value.parse().ok().filter(|value| (min..=max).contains(value));
    count.ok_or_else(|| format!("{key} must be a number from {min} to {max}, not `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<WorkloadSpec>, String> {
        text.parse::<Named>().map(|named| parse_all(&[named]))
    }

    #[test]
    fn settings_replace_defaults() {
        let specs = parse("statwalk:files=7").expect("a workload");
        assert_eq!(specs[0].name(), "statwalk:files=7");
        assert_eq!((specs[0].settings.get("files"), specs[0].settings.get("dirs")), (7, 20));
        let specs = parse("mdtest-hard:files=9").expect("a group");
        assert_eq!(specs.len(), 4);
        assert!(specs.iter().all(|spec| spec.name().ends_with(":files=9") && spec.settings.get("files") == 9));
    }

    #[test]
    fn bad_names_and_settings_are_explained() {
        for (text, says) in [
            ("nothing", "crunl"),
            ("crunl:files=1", "its only setting is steps"),
            ("crunl:steps=0", "from 1 to"),
            ("statwalk:steps=1", "already end"),
            ("dpath:steps=1", "disturb"),
            ("statwalk:fils=1", "dirs, files, steps"),
            ("statwalk:files=0", "from 1 to"),
            ("statwalk:files=many", "many"),
            ("statwalk:files", "KEY=VALUE"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
