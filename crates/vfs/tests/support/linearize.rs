//! Whether an order of the steps explains a concurrent history.
//!
//! The search is that of Wing and Gong (*Testing and verifying concurrent objects*, 1993) with the
//! memoization of Lowe (*Testing for linearizability*, 2017). Operations that overlap may take
//! effect in any order. Operations that do not overlap keep their order. A configuration is the
//! stage of each operation, and the state. A configuration that failed once is not tried again.

use std::collections::HashSet;

use crate::model::{Model, Op, Outcome, Stage};

/// An operation that was called and has returned.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub thread: usize,
    pub op: Op,
    pub outcome: Outcome,
    /// The times of the call and of its return, as values of one counter.
    pub called: u64,
    pub returned: u64,
}

/// Whether an order explains the history from a first state.
pub fn is_linearizable(first: &Model, history: &[Call]) -> bool {
    let stages = vec![Stage::Begun; history.len()];
    let mut failed = HashSet::new();
    let mut todo = vec![(first.clone(), stages)];
    while let Some((state, stages)) = todo.pop() {
        // No operation may begin after the return of another that is not done yet.
        let unfinished = history.iter().zip(&stages).filter(|(_, stage)| **stage != Stage::Done);
        let Some(horizon) = unfinished.map(|(call, _)| call.returned).min() else { return true };
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

/// A readable history: one call a line, in the order of the calls.
pub fn render(history: &[Call]) -> String {
    let mut calls = history.to_vec();
    calls.sort_by_key(|call| call.called);
    calls
        .iter()
        .map(|call| {
            format!("{:>4}-{:<4} T{} {:?} -> {:?}\n", call.called, call.returned, call.thread, call.op, call.outcome)
        })
        .collect()
}
