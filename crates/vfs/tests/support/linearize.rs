//! Is there an order of the steps that explains a concurrent history?
//!
//! The search of Wing and Gong (*Testing and verifying concurrent objects*, 1993) with the memory of Lowe (*Testing for
//! linearizability*, 2017): operations that overlap may go in any order, those that do not keep theirs; a configuration
//! (how far each operation has come, and the state) that failed once is not tried again.

use std::collections::HashSet;

use crate::model::{Model, Op, Outcome, Stage};

/// An operation that was called and has answered.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub thread: usize,
    pub op: Op,
    pub outcome: Outcome,
    /// When it was called, and when it answered: numbers from one counter.
    pub called: u64,
    pub answered: u64,
}

/// Whether the history can be explained from a first state.
pub fn is_linearizable(first: &Model, history: &[Call]) -> bool {
    let stages = vec![Stage::Begun; history.len()];
    let mut failed = HashSet::new();
    let mut todo = vec![(first.clone(), stages)];
    while let Some((state, stages)) = todo.pop() {
        // An operation may not begin after another has answered that is not done yet.
        let unfinished = history.iter().zip(&stages).filter(|(_, stage)| **stage != Stage::Done);
        let Some(horizon) = unfinished.map(|(call, _)| call.answered).min() else { return true };
        for (index, call) in history.iter().enumerate() {
            if call.called > horizon {
                continue;
            }
            for (next, stage) in state.step(call.op, stages[index], call.outcome) {
                let mut stages = stages.clone();
                stages[index] = stage;
                if failed.insert((next.clone(), stages.clone())) {
                    todo.push((next, stages));
                }
            }
        }
    }
    false
}

/// A history for people: one call a line, in the order of the calls.
pub fn render(history: &[Call]) -> String {
    let mut calls = history.to_vec();
    calls.sort_by_key(|call| call.called);
    calls
        .iter()
        .map(|call| {
            format!("{:>4}-{:<4} T{} {:?} -> {:?}\n", call.called, call.answered, call.thread, call.op, call.outcome)
        })
        .collect()
}
