//! Rows that are repeatedly deleted and set, with rewrites and snapshots in between.

use stele_engine::Txn;

use super::run::Run;

impl Run {
    /// Runs random steps, about a third of them deletes of one row or of ranges over
    /// it.
    pub fn steps_of_deletes(&mut self, count: usize) {
        self.repeat(count, |run| {
            if run.chance.percent(35) { run.delete_often() } else { run.any_step() }
        });
    }

    fn delete_often(&mut self) {
        let table = self.chance.below(self.tables.len());
        let row = self.chance.row();
        for _ in 0..2 + self.chance.below(8) {
            let changes = {
                let schema = &self.tables[table].schema;
                self.chance.overwrite(schema, &row, self.now())
            };
            self.record_step(format!("overwrite in t{table} {changes}"));
            self.apply(vec![(table, changes)], Txn::MAX);
            match self.chance.below(6) {
                0 => self.snapshot(),
                1 => self.perhaps_rewrite(table),
                _ => {}
            }
        }
        if self.chance.percent(30) {
            self.read_all(table);
        }
    }
}
