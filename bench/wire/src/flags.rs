//! The flags of a command line.

use std::collections::HashMap;
use std::str::FromStr;

/// `--key value` flags; a flag without a value has the value "true".
pub struct Flags(HashMap<String, String>);

impl Flags {
    pub fn parse(known: &[&str]) -> Self {
        let mut map = HashMap::new();
        let mut args = std::env::args().skip(1).peekable();
        while let Some(arg) = args.next() {
            let name = arg.trim_start_matches("--").to_string();
            if !arg.starts_with("--") || !known.contains(&name.as_str()) {
                eprintln!("unknown argument {arg}: use --{}", known.join(" --"));
                std::process::exit(2);
            }
            let value = match args.peek() {
                Some(v) if !v.starts_with("--") => args.next().unwrap(),
                _ => "true".to_string(),
            };
            map.insert(name, value);
        }
        Flags(map)
    }

    pub fn get<T: FromStr>(&self, name: &str, default: T) -> T {
        match self.0.get(name) {
            None => default,
            Some(v) => v.parse().unwrap_or_else(|_| {
                eprintln!("invalid value {v:?} for --{name}");
                std::process::exit(2)
            }),
        }
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| default.to_string())
    }

    pub fn list<T: FromStr>(&self, name: &str, default: &str) -> Vec<T> {
        let text = self.text(name, default);
        let items = text.split(',').filter(|s| !s.is_empty());
        items
            .map(|s| {
                s.trim().parse().unwrap_or_else(|_| {
                    eprintln!("invalid item {s:?} in --{name}");
                    std::process::exit(2)
                })
            })
            .collect()
    }
}
