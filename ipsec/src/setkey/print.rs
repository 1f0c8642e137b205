//! A [`File`] as text, one statement a line, in the order in which the manual lists the parts.
//!
//! INVARIANT: `parse(print(file)) == file`.

use zeroize::Zeroizing;

use super::ast::*;
use super::protocol;
use super::secret_text::SecretText;

/// The canonical text of `file`. It holds the keys, hence the wrapping that zeroes it; quoted keys need not be UTF-8.
pub fn print(file: &File) -> Zeroizing<Vec<u8>> {
    let mut printer = Printer::default();
    for statement in &file.statements {
        printer.statement(&statement.node);
        printer.out.push(b";\n");
    }
    printer.out.into_bytes()
}

#[derive(Default)]
struct Printer {
    out: SecretText,
}

impl Printer {
    fn word(&mut self, word: &str) {
        if !matches!(self.out.last_byte(), None | Some(b'\n')) {
            self.out.push(b" ");
        }
        self.out.push(word.as_bytes());
    }

    fn flag(&mut self, flag: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.word(flag);
            self.word(&value.to_string());
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Add(entry) => self.sa_entry("add", entry),
            Statement::Update(entry) => self.sa_entry("update", entry),
            Statement::GetSpi(name) => self.sa_name("getspi", name),
            Statement::Get(name) => self.sa_name("get", name),
            Statement::Delete(name) => self.sa_name("delete", name),
            Statement::DeleteAll(group) => self.sa_group(group),
            Statement::Flush(protocol) => self.of_protocol("flush", protocol),
            Statement::Dump(protocol) => self.of_protocol("dump", protocol),
            Statement::SpdAdd(entry) => self.policy_entry("spdadd", entry),
            Statement::SpdUpdate(entry) => self.policy_entry("spdupdate", entry),
            Statement::SpdDelete(entry) => self.policy_entry("spddelete", entry),
            Statement::SpdGet(entry) => self.policy_entry("spdget", entry),
            Statement::SpdFlush => self.word("spdflush"),
            Statement::SpdDump => self.word("spddump"),
            Statement::Exit => self.word("exit"),
        }
    }

    fn sa_entry(&mut self, verb: &str, entry: &SaEntry) {
        self.sa_name(verb, &entry.name);
        self.algorithm("-E", &entry.encryption);
        self.algorithm("-A", &entry.integrity);
        if let Some(compression) = &entry.compression {
            self.flag("-C", Some(&compression.node.name.node));
            if compression.node.raw {
                self.word("-R");
            }
        }
    }

    fn sa_name(&mut self, verb: &str, name: &SaName) {
        self.word(verb);
        self.lookup(name.lookup);
        self.word(&endpoint(&name.source));
        self.word(&endpoint(&name.destination));
        self.protocol(&name.protocol.node);
        self.word(&format!("{:#x}", name.spi.node));
        self.extensions(&name.extensions);
    }

    fn sa_group(&mut self, group: &SaGroup) {
        self.word("deleteall");
        self.lookup(group.lookup);
        self.word(&endpoint(&group.source));
        self.word(&endpoint(&group.destination));
        self.protocol(&group.protocol.node);
    }

    fn of_protocol(&mut self, verb: &str, protocol: &Option<At<ProtocolWord>>) {
        self.word(verb);
        if let Some(protocol) = protocol {
            self.protocol(&protocol.node);
        }
    }

    fn lookup(&mut self, lookup: Lookup) {
        match lookup.family {
            Some(Family::V4) => self.word("-4"),
            Some(Family::V6) => self.word("-6"),
            None => {}
        }
        if lookup.numeric {
            self.word("-n");
        }
    }

    fn protocol(&mut self, protocol: &ProtocolWord) {
        self.word(match protocol {
            ProtocolWord::Esp => "esp",
            ProtocolWord::EspOld => "esp-old",
            ProtocolWord::EspUdp(_) => "esp-udp",
            ProtocolWord::Ah => "ah",
            ProtocolWord::AhOld => "ah-old",
            ProtocolWord::IpComp => "ipcomp",
            ProtocolWord::Tcp => "tcp",
        });
        if let ProtocolWord::EspUdp(Some(original)) = protocol {
            self.word(&host(&original.node));
        }
    }

    fn extensions(&mut self, extensions: &Extensions) {
        let number = |value: &Option<At<u64>>| value.as_ref().map(|at| at.node);
        self.flag("-m", extensions.mode.map(|at| mode(at.node)));
        self.flag("-r", number(&extensions.replay));
        self.flag("-u", number(&extensions.reqid));
        self.flag("-f", extensions.padding.map(|at| padding(at.node)));
        self.flag("-f", extensions.nocyclic.map(|_| "nocyclic-seq"));
        self.flag("-lh", number(&extensions.hard_seconds));
        self.flag("-ls", number(&extensions.soft_seconds));
        self.flag("-bh", number(&extensions.hard_bytes));
        self.flag("-bs", number(&extensions.soft_bytes));
        self.label(&extensions.label);
        self.options(&extensions.options);
    }

    fn label(&mut self, label: &Option<At<Label>>) {
        if let Some(At { node: label, .. }) = label {
            let Label {
                domain,
                algorithm,
                text,
            } = label;
            self.word(&format!("-ctx {domain} {algorithm} \"{text}\""));
        }
    }

    fn options(&mut self, options: &[At<NamedOption>]) {
        for option in options {
            let NamedOption { name, value } = &option.node;
            match value {
                Some(value) => self.flag("-o", Some(format!("{name}={value}"))),
                None => self.flag("-o", Some(name)),
            }
        }
    }

    fn algorithm(&mut self, flag: &str, algorithm: &Option<At<Algorithm>>) {
        let Some(At { node, .. }) = algorithm else {
            return;
        };
        self.flag(flag, Some(&node.name.node));
        match node.key.as_ref().map(|key| &key.node) {
            Some(Key::Quoted(key)) => {
                self.out.push(b" \"");
                self.out.push(key.expose());
                self.out.push(b"\"");
            }
            Some(Key::Hexadecimal(key)) => {
                self.out.push(b" 0x");
                self.out.push_hexadecimal(key.expose());
            }
            None => {}
        }
    }

    fn policy_entry(&mut self, verb: &str, entry: &PolicyEntry) {
        self.word(verb);
        self.lookup(entry.lookup);
        match &entry.selector {
            SelectorClause::Tagged(tag) => self.word(&format!("tagged \"{}\"", tag.node)),
            SelectorClause::Ranges(ranges) => {
                self.word(&range(&ranges.source));
                self.word(&range(&ranges.destination));
                self.word(&upper(ranges.upper.node));
            }
        }
        self.label(&entry.label);
        self.options(&entry.options);
        self.policy(&entry.policy);
    }

    fn policy(&mut self, policy: &PolicyClause) {
        self.flag("-P", Some(direction(policy.direction.node)));
        if let Some(priority) = policy.priority {
            self.word(&priority_words(priority.node));
        }
        if let Some(action) = policy.action {
            self.word(action_word(action.node));
        }
        for template in &policy.templates {
            self.word(&template_word(&template.node));
        }
    }
}

fn host(host: &Host) -> String {
    match host {
        Host::Address(address) => address.to_string(),
        Host::Scoped(address, zone) => format!("{address}%{zone}"),
        Host::Name(name) => name.clone(),
    }
}

fn port(port: &Option<At<Port>>) -> String {
    match port.as_ref().map(|at| &at.node) {
        None => String::new(),
        Some(Port::Any) => "[any]".to_owned(),
        Some(Port::Number(number)) => format!("[{number}]"),
        Some(Port::Service(name)) => format!("[{name}]"),
    }
}

fn endpoint(endpoint: &Endpoint) -> String {
    host(&endpoint.host.node) + &port(&endpoint.port)
}

fn range(range: &Range) -> String {
    let prefix = range.prefix.map(|prefix| format!("/{}", prefix.node));
    host(&range.host.node) + &prefix.unwrap_or_default() + &port(&range.port)
}

fn upper(upper: UpperClause) -> String {
    let name = |number: u8| match protocol::name(number) {
        Some(name) => name.to_owned(),
        None => number.to_string(),
    };
    match upper {
        UpperClause::Any => "any".to_owned(),
        UpperClause::Protocol(number) => name(number),
        UpperClause::Gre(key) => format!("gre {key}"),
        UpperClause::Message {
            protocol,
            kind,
            code: None,
        } => format!("{} {kind}", name(protocol)),
        UpperClause::Message {
            protocol,
            kind,
            code: Some(code),
        } => {
            format!("{} {kind},{code}", name(protocol))
        }
    }
}

fn mode(mode: ModeWord) -> &'static str {
    match mode {
        ModeWord::Transport => "transport",
        ModeWord::Tunnel => "tunnel",
        ModeWord::Any => "any",
    }
}

fn padding(padding: Padding) -> &'static str {
    match padding {
        Padding::Zero => "zero-pad",
        Padding::Random => "random-pad",
        Padding::Sequential => "seq-pad",
    }
}

fn direction(direction: DirectionWord) -> &'static str {
    match direction {
        DirectionWord::In => "in",
        DirectionWord::Out => "out",
        DirectionWord::Forward => "fwd",
    }
}

fn priority_words(priority: Priority) -> String {
    let Priority { base, offset } = priority;
    let base = match base {
        None => return format!("prio {offset}"),
        Some(PriorityBase::Low) => "low",
        Some(PriorityBase::Default) => "def",
        Some(PriorityBase::High) => "high",
    };
    match offset {
        0 => format!("prio {base}"),
        _ if offset < 0 => format!("prio {base} - {}", offset.unsigned_abs()),
        _ => format!("prio {base} + {offset}"),
    }
}

fn action_word(action: ActionWord) -> &'static str {
    match action {
        ActionWord::Discard => "discard",
        ActionWord::None => "none",
        ActionWord::Ipsec => "ipsec",
        ActionWord::Entrust => "entrust",
        ActionWord::Bypass => "bypass",
    }
}

fn template_word(template: &TemplateClause) -> String {
    let protocol = match template.protocol.node {
        TemplateProtocol::Esp => "esp",
        TemplateProtocol::Ah => "ah",
        TemplateProtocol::IpComp => "ipcomp",
    };
    let ends = match template.ends.as_ref().map(|at| &at.node) {
        None => String::new(),
        Some(Ends::MeAny) => "me-any".to_owned(),
        Some(Ends::AnyMe) => "any-me".to_owned(),
        Some(Ends::Between(ends)) => format!("{}-{}", endpoint(&ends[0]), endpoint(&ends[1])),
    };
    let level = match template.level.node {
        LevelWord::Default => "default".to_owned(),
        LevelWord::Use => "use".to_owned(),
        LevelWord::Require => "require".to_owned(),
        LevelWord::Unique(None) => "unique".to_owned(),
        LevelWord::Unique(Some(id)) => format!("unique:{id}"),
    };
    format!("{protocol}/{}/{ends}/{level}", mode(template.mode.node))
}
