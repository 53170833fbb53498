# ruff: noqa: E501
"""Loops whose host statements depend on each other in ways that no name shows.

The rewrite must keep their order, or refuse.
"""

HOST_ORDER = {
    "accs topk": """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    res = []
    for k in (1, 2):
        res.append((out.topk(k, 1).indices == y[:, None]).any(1).float().mean().item())
    top1, top2 = res if len(res) == 2 else (0, 0)
    loss.backward()
    optimizer.step()
    print(top1, top2)
""",
    "annotated assign": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
class Board:
    def __init__(self, meters):
        self.meters = meters
    def show(self):
        return [len(m.v) for m in self.meters]
lm: M = M()
board: Board = Board([lm])
for x, y in loader:
    loss = criterion(model(x), y)
    lm.update(loss.item())
    s = board.show()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(s)
""",
    "annotated list": """\
history: dict = {"loss": []}
losses: list = history["loss"]
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(history["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "annotated self": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
class T:
    def __init__(self):
        self.lm: M = M()
        self.meters: dict = {"loss": self.lm}
    def fit(self):
        for x, y in loader:
            loss = criterion(model(x), y)
            self.lm.update(loss.item())
            s = len(self.meters["loss"].v)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(s)
T().fit()
""",
    "args temp between fwd bwd": """\
import argparse
args = argparse.Namespace(temp=1.0)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        return self.l(x) / args.temp
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for i, (x, y) in enumerate(loader):
    out1 = model(x)
    args.temp = 0.5
    out2 = model(x)
    args.temp = 1.0
    loss = criterion(out1, y) + criterion(out2, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "args temp forward": """\
import argparse
args = argparse.Namespace(temp=1.0, anneal=3)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        return self.l(x) / args.temp
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if i % args.anneal == 0:
        args.temp = max(0.5, args.temp * 0.8)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(args.temp, loss.item())
""",
    "attr alias namespace": """\
from types import SimpleNamespace
history = []
state = SimpleNamespace(history=history, step=0)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    history.append(loss.item())
    n = len(state.history)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "cfg update loss class": """\
CFG = {"beta": 0.0}
class Crit(nn.Module):
    def forward(self, out, y):
        return F.cross_entropy(out, y) + CFG["beta"] * out.pow(2).mean()
criterion = Crit()
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    CFG.update(beta=min(1.0, i / 3))
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(CFG["beta"], loss.item())
""",
    "clip after step": """\
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{nn.utils.clip_grad_norm_(model.parameters(), 1e9).item():.4f}")
    optimizer.zero_grad()
""",
    "clip after step kept": """\
kept = []
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    kept.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
    optimizer.zero_grad()
print([k.item() for k in kept])
""",
    "copy of outer made": """\
base = {"run": 1}
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {**base}
    logs.update(loss=loss.item())
    n = len(logs)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "ctx phase inst": """\
class Ctx:
    def __init__(self):
        self.phase = "idle"
class Log:
    def __init__(self, ctx):
        self.ctx, self.rows = ctx, []
    def info(self, k):
        self.rows.append((k, self.ctx.phase))
def run(state, logger):
    for x, y in loader:
        optimizer.zero_grad()
        state.phase = "fwd"
        loss = criterion(model(x), y)
        logger.info("a")
        state.phase = "bwd"
        loss.backward()
        logger.info("b")
        optimizer.step()
c = Ctx(); l = Log(c)
run(c, l)
print(l.rows)
""",
    "dict call made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = dict(step=0)
    logs.update(loss=loss.item())
    items = sorted(logs.items())
    loss.backward()
    optimizer.step()
    print(items)
""",
    "fill batch": """\
it = iter([x for x, y in loader] * 4)
for i in range(5):
    optimizer.zero_grad()
    batch = []
    for _ in range(3):
        batch.append(next(it))
    x = torch.cat(batch)
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(len(batch), loss.item())
""",
    "grad hook list": """\
grads = []
model[0].weight.register_hook(lambda g: grads.append(g.norm().item()))
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    n = len(grads)
    optimizer.step()
    print(n, grads[-1])
""",
    "group self attr": """\
class T:
    def __init__(self):
        self.opt = torch.optim.Adam(model.parameters())
        self.group = self.opt.param_groups[0]
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.9)
        self.lrs = []
    def fit(self):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            self.opt.step()
            self.lrs.append(self.group["lr"])
            self.sched.step()
            lr = self.group["lr"]
            self.opt.zero_grad()
            print(lr)
t = T(); t.fit()
print(t.lrs)
""",
    "keep copy then core append": """\
hist = []
for x, y in loader:
    optimizer.zero_grad()
    outs = []
    outs.append(model(x).detach())
    hist.append(list(outs))
    outs.append(model(x * 0.5).detach())
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print([[t.sum().item() for t in h] for h in hist])
""",
    "keep tuple then core pop": """\
hist = []
for x, y in loader:
    optimizer.zero_grad()
    outs = [model(x * s).detach() for s in (1, 2, 3)]
    hist.append(len(outs))
    last = outs.pop()
    loss = criterion(model(x), y) + 0 * last.sum()
    loss.backward()
    optimizer.step()
print(hist)
""",
    "labels list made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    names = []
    for t in y.tolist():
        names.append("pos" if t else "neg")
    loss = criterion(model(x), y)
    npos = names.count("pos")
    loss.backward()
    optimizer.step()
    print(npos, names)
""",
    "lambda record": """\
losses = []
record = lambda v: losses.append(v)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    record(loss.item())
    n = len(losses)
    optimizer.zero_grad()
    print(n)
""",
    "list made accum return": """\
class T:
    def step(self, batch):
        x, y = batch
        optimizer.zero_grad()
        out = model(x)
        losses = [criterion(out, y), 0.1 * out.abs().mean()]
        report = []
        for l in losses:
            report.append(round(l.item(), 4))
        avg = sum(report) / max(len(report), 1)
        sum(losses).backward()
        optimizer.step()
        return avg
t = T()
for b in loader:
    print(t.step(b))
""",
    "list of meters append": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
meters = []
lm = M()
meters.append(lm)
for x, y in loader:
    loss = criterion(model(x), y)
    lm.update(loss.item())
    s = [len(m.v) for m in meters]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(s)
""",
    "logger class global list": """\
rows = []
class Logger:
    def log(self, **kw):
        rows.append(kw)
logger = Logger()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    logger.log(loss=loss.item())
    last = rows[-1] if rows else None
    loss.backward()
    optimizer.step()
    print(last)
""",
    "logger ctx func arg": """\
class Logger:
    def __init__(self, ctx):
        self.ctx, self.rows = ctx, []
    def line(self):
        return f"step {self.ctx['step']}"
def run(state, log):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        state["step"] += 1
        head = log.line()
        loss.backward()
        optimizer.step()
        print(head, loss.item())
ctx = {"step": 0}
run(ctx, Logger(ctx))
""",
    "logs dict literal update": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {"lr": optimizer.param_groups[0]["lr"]}
    logs.update({"loss": loss.item()})
    n = len(logs)
    loss.backward()
    optimizer.step()
    print(n, logs)
""",
    "logs nested": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {"train": {}}
    logs["train"].update(loss=loss.item())
    k = list(logs["train"])
    loss.backward()
    optimizer.step()
    print(k)
""",
    "logs update line": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {}
    logs.update(loss=loss.item())
    logs.update(acc=(out.argmax(1) == y).float().mean().item())
    line = " ".join(f"{k}={v:.4f}" for k, v in logs.items())
    loss.backward()
    optimizer.step()
    print(line)
""",
    "losses pop aux": """\
rows = []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    losses = {"ce": criterion(out, y), "aux": 0.1 * out.pow(2).mean()}
    rows.append({k: v.item() for k, v in losses.items()})
    aux = losses.pop("aux")
    loss = losses["ce"] + aux
    loss.backward()
    optimizer.step()
print(rows)
""",
    "losses setdefault": """\
rows = []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    losses = {"ce": criterion(out, y)}
    rows.append(list(losses))
    losses.setdefault("aux", 0.1 * out.pow(2).mean())
    loss = sum(losses.values())
    loss.backward()
    optimizer.step()
print(rows)
""",
    "lr enumerate groups": """\
base = [0.1, 0.01]
optimizer = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    for i, g in enumerate(optimizer.param_groups):
        g["lr"] = base[i] * 0.9 ** it
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "lr enumerate milestone": """\
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if it in (3, 300):
        for i, g in enumerate(optimizer.param_groups):
            g["lr"] *= 0.1
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "lr logging method tick": """\
class Warm:
    def __init__(self, opt):
        self.opt, self.i = opt, 0
    def tick(self):
        self.i += 1
        for g in self.opt.param_groups:
            g["lr"] = 0.01 / self.i
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
warm = Warm(optimizer)
for x, y in loader:
    optimizer.zero_grad()
    warm.tick()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "lr method zero last": """\
class T:
    def __init__(self):
        self.opt = torch.optim.Adam(model.parameters(), lr=0.01)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.9)
    def lr(self):
        return self.opt.param_groups[0]["lr"]
    def fit(self):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            self.opt.step()
            lr = self.lr()
            self.sched.step()
            after = self.lr()
            self.opt.zero_grad()
            print(lr, after)
T().fit()
""",
    "lr zip groups": """\
base = [0.1]
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for b, g in zip(base, optimizer.param_groups):
        g["lr"] = b / (it + 1)
    optimizer.step()
    print(loss.item())
""",
    "meters classmethod": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
class Board:
    def __init__(self, meters):
        self.meters = meters
    @classmethod
    def of(cls, *m):
        return cls(m)
    def show(self):
        return [len(m.v) for m in self.meters]
lm = M()
board = Board.of(lm)
for x, y in loader:
    loss = criterion(model(x), y)
    lm.update(loss.item())
    s = board.show()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(s)
""",
    "meters dict call": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
loss_meter = Meter()
meters = dict(loss=loss_meter)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss_meter.update(loss.item(), x.size(0))
    n = meters["loss"].n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "meters dict item": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
loss_meter = Meter()
meters = {}
meters["loss"] = loss_meter
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss_meter.update(loss.item(), x.size(0))
    n = meters["loss"].n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "meters factory": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
class Board:
    def __init__(self, meters):
        self.meters = meters
    def show(self):
        return [len(m.v) for m in self.meters]
def make_board(*m):
    return Board(m)
lm = M()
board = make_board(lm)
for x, y in loader:
    loss = criterion(model(x), y)
    lm.update(loss.item())
    s = board.show()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(s)
""",
    "method returning alias": """\
class Logger:
    def __init__(self):
        self.d = {}
    def history(self, k):
        return self.d.setdefault(k, [])
    def log(self, k, v):
        self.history(k).append(v)
logger = Logger()
losses = logger.history("loss")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    logger.log("loss", loss.item())
    n = len(losses)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "metric logger mid": """\
class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def update(self, v):
        self.total += v
        self.count += 1
class MetricLogger:
    def __init__(self):
        self.meters = {}
    def add_meter(self, k, m):
        self.meters[k] = m
    def __str__(self):
        return " ".join(f"{k}: {m.total:.4f}" for k, m in self.meters.items())
ml = MetricLogger()
lm = Meter()
ml.add_meter("loss", lm)
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    lm.update(loss.item())
    msg = str(ml)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(msg)
""",
    "monitor built in function": """\
class Monitor:
    def __init__(self, net):
        self.net = net
    def norm(self):
        return sum(p.grad.norm().item() for p in self.net.parameters() if p.grad is not None)
def build():
    return Monitor(model)
mon = build()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    g = mon.norm()
    optimizer.step()
    print(g)
""",
    "monitor from optimizer": """\
class Monitor:
    def __init__(self, opt):
        self.opt = opt
    def norm(self):
        return sum(p.grad.norm().item() for g in self.opt.param_groups for p in g["params"] if p.grad is not None)
mon = Monitor(optimizer)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    g = mon.norm()
    optimizer.step()
    print(g)
""",
    "monitor renamed param": """\
class Monitor:
    def __init__(self, net):
        self.net = net
    def grad_norm(self):
        return sum(p.grad.norm().item() for p in self.net.parameters() if p.grad is not None)
class Trainer:
    def __init__(self, net, opt, mon):
        self.net, self.opt, self.mon = net, opt, mon
    def fit(self):
        for x, y in loader:
            self.opt.zero_grad()
            loss = criterion(self.net(x), y)
            loss.backward()
            g = self.mon.grad_norm()
            self.opt.step()
            print(g)
Trainer(model, optimizer, Monitor(model)).fit()
""",
    "multi assign lists": """\
train_losses = all_losses = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    train_losses.append(loss.item())
    n = len(all_losses)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "other property grad": """\
class Mon:
    def __init__(self, m):
        self.m = m
    @property
    def grad_norm(self):
        return sum(p.grad.norm() for p in self.m.parameters() if p.grad is not None)
mon = Mon(model)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(mon.grad_norm)
    optimizer.zero_grad()
""",
    "params alias function": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, v):
        self.sum += v
        self.n += 1
class Report:
    def __init__(self, m):
        self.m = m
    def line(self):
        return f"{self.m.sum / max(1, self.m.n):.4f}"
def train(meter, report):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        meter.update(loss.item())
        line = report.line()
        loss.backward()
        optimizer.step()
        print(line)
m = Meter()
r = Report(m)
train(m, r)
""",
    "params alias trainer": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, v):
        self.sum += v
        self.n += 1
class Report:
    def __init__(self, m):
        self.m = m
    def line(self):
        return f"{self.m.sum / max(1, self.m.n):.4f}"
class Trainer:
    def __init__(self, meter, report):
        self.meter, self.report = meter, report
    def fit(self):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            self.meter.update(loss.item())
            line = self.report.line()
            loss.backward()
            optimizer.step()
            print(line)
m = Meter()
Trainer(m, Report(m)).fit()
""",
    "params renamed list": """\
def train(net, opt, tracked):
    rows = []
    for x, y in loader:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        rows.append([t.detach().clone() for t in tracked])
        opt.step()
    print([sum(t.sum().item() for t in r) for r in rows])
train(model, optimizer, [model[0].weight, model[2].bias])
""",
    "per class acc": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    accs = []
    for c in range(2):
        m = y == c
        accs.append((out.argmax(1)[m] == c).sum().item())
    best = max(accs)
    loss.backward()
    optimizer.step()
    print(best, accs)
""",
    "per class acc len": """\
for i, (x, y) in enumerate(loader):
    out = model(x)
    loss = criterion(out, y)
    accs = []
    for c in range(2):
        accs.append((out.argmax(1) == c).float().mean().item())
    macc = sum(accs) / max(1, len(accs))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(macc)
""",
    "print keys then core update": """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    losses = {}
    losses.update(ce=criterion(out, y))
    print(sorted(losses))
    losses.update(l2=0.1 * out.pow(2).mean())
    loss = sum(losses.values())
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "print len then core append": """\
for x, y in loader:
    optimizer.zero_grad()
    outs = []
    outs.append(model(x))
    print("parts", len(outs))
    outs.append(model(x * 0.5))
    loss = sum(criterion(o, y) for o in outs)
    loss.backward()
    optimizer.step()
""",
    "progress add": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
class Progress:
    def __init__(self):
        self.meters = {}
    def add_meter(self, name, m):
        self.meters[name] = m
    def summary(self):
        return " ".join(f"{k} {m.avg:.4f}" for k, m in self.meters.items())
loss_meter = Meter()
progress = Progress()
progress.add_meter("loss", loss_meter)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss_meter.update(loss.item(), x.size(0))
    line = progress.summary()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "progress attr": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
class Progress:
    def __init__(self):
        self.meters = []
    def summary(self):
        return " ".join(f"{m.avg:.4f}" for m in self.meters)
loss_meter = Meter()
progress = Progress()
progress.meters = [loss_meter]
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss_meter.update(loss.item(), x.size(0))
    line = progress.summary()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "progress list var": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
class Progress:
    def __init__(self, *meters, prefix=""):
        self.meters = meters
    def summary(self):
        return " ".join(f"{m.avg:.4f}" for m in self.meters)
loss_meter, acc_meter = Meter(), Meter()
progress = Progress(loss_meter, acc_meter, prefix="x")
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    acc_meter.update((out.argmax(1) == y).float().mean().item(), x.size(0))
    loss_meter.update(loss.item(), x.size(0))
    line = progress.summary()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "property weights renamed": """\
class Mon:
    def __init__(self, m):
        self.m = m
    @property
    def norm(self):
        return sum(p.norm().item() for p in self.m.parameters())
def train(net, opt, monitor):
    rows = []
    for x, y in loader:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        rows.append(monitor.norm)
        opt.step()
    print(rows)
train(model, optimizer, Mon(model))
""",
    "record func zero last": """\
history = []
def record(v):
    history.append(v)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    record(loss.item())
    n = len(history)
    optimizer.zero_grad()
    print(n)
""",
    "record method global zero last": """\
history = []
class Rec:
    def update(self, v):
        history.append(v)
rec = Rec()
for x, y in loader:
    loss = criterion(model(x), y)
    rec.update(loss.item())
    n = len(history)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(n)
""",
    "sched list": """\
optimizer = torch.optim.Adam(model.parameters())
scheds = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(optimizer.param_groups[0]["lr"])
    [s.step() for s in scheds]
    optimizer.zero_grad()
""",
    "set add made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    seen = set()
    for t in out.argmax(1).tolist():
        seen.add(t)
    k = len(seen)
    loss.backward()
    optimizer.step()
    print(k, seen)
""",
    "set lr noreturn before": """\
class Warm:
    def __init__(self, opt):
        self.opt, self.i = opt, 0
    def update(self, n):
        self.i += n
        for g in self.opt.param_groups:
            g["lr"] = 0.01 / self.i
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
warm = Warm(optimizer)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    warm.update(1)
    optimizer.step()
    print(loss.item())
""",
    "set lr object": """\
class Warm:
    def __init__(self, opt, base, n):
        self.opt, self.base, self.n, self.i = opt, base, n, 0
    def apply(self):
        self.i += 1
        lr = self.base * min(1, self.i / self.n)
        for g in self.opt.param_groups:
            g["lr"] = lr
        return lr
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
warm = Warm(optimizer, 0.01, 4)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    prev = optimizer.param_groups[0]["lr"]
    lr = warm.apply()
    optimizer.step()
    print(prev, lr, loss.item())
""",
    "setdefault alias": """\
hist = {}
losses = hist.setdefault("loss", [])
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "shared state created elsewhere": """\
class State:
    def __init__(self):
        self.step = 0
class Sched:
    def __init__(self, state):
        self.state = state
    def beta(self):
        return min(1.0, self.state.step / 4)
def build():
    s = State()
    return s, Sched(s)
state, sched = build()
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    state.step += 1
    beta = sched.beta()
    loss.backward()
    optimizer.step()
    print(beta, loss.item())
""",
    "sort inplace": """\
rows = []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    order = [2, 0, 1]
    rows.append(list(order))
    order.sort()
    loss = criterion(out[order], y[order])
    loss.backward()
    optimizer.step()
print(rows)
""",
    "split left func": """\
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
def weight_norm():
    return sum(p.norm() for p in model.parameters()).item()
log = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    log.append((nn.utils.clip_grad_norm_(model.parameters(), 1.0).item(), weight_norm()))
    optimizer.step()
print(log)
""",
    "stats dict func": """\
stats = {"n": 0, "sum": 0.0}
def track(v):
    stats["n"] += 1
    stats["sum"] += v
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    track(loss.item())
    avg = stats["sum"] / stats["n"]
    optimizer.zero_grad()
    print(avg)
""",
    "stats extend": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    probs = []
    probs.extend(out.softmax(1)[:, 1].tolist())
    hi = len([p for p in probs if p > 0.5])
    loss.backward()
    optimizer.step()
    print(hi)
""",
    "super call": """\
class Base:
    def compute(self, x, y):
        return criterion(model(x), y)
class T(Base):
    def compute(self, x, y):
        return super().compute(x, y) * 2
    def step(self, x, y):
        optimizer.zero_grad()
        loss = super().compute(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()
t = T()
for x, y in loader:
    print(t.step(x, y))
""",
    "targets list made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    w = [1.0]
    for t in y.tolist():
        w.append(2.0 if t else 1.0)
    loss = criterion(model(x), y) * sum(w)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "temp attr model global": """\
class Cfg:
    temp = 1.0
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        return self.l(x) / Cfg.temp
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if i == 3:
        Cfg.temp = 0.5
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "temp schedule add": """\
class Temp:
    def __init__(self):
        self.v, self.i = 1.0, 0
    def add(self, n):
        self.i += n
        if self.i > 9:
            self.v = 0.5
temp = Temp()
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        return self.l(x) / temp.v
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    temp.add(len(x))
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "token counter attr": """\
class Counter:
    def __init__(self):
        self.n = 0
    def add(self, k):
        self.n += k
class Run: pass
run = Run()
c = Counter()
run.counter = c
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    c.add(x.numel())
    seen = run.counter.n
    loss.backward()
    optimizer.step()
    print(seen)
""",
    "trainer method logs2": """\
class T:
    def step(self, x, y):
        optimizer.zero_grad()
        out = model(x)
        losses = [criterion(out, y), 0.1 * out.pow(2).mean()]
        vals = []
        for v in losses:
            vals.append(v.item())
        mean = sum(vals) / 2
        loss = sum(losses)
        loss.backward()
        optimizer.step()
        return mean
t = T()
for x, y in loader:
    print(t.step(x, y))
""",
    "trainer progress in init": """\
class Meter:
    def __init__(self):
        self.s = self.n = 0
    def update(self, v):
        self.s += v; self.n += 1
class Trainer:
    def __init__(self):
        self.loss_m, self.acc_m = Meter(), Meter()
        self.meters = {"loss": self.loss_m, "acc": self.acc_m}
    def line(self):
        return " ".join(f"{k}={m.s:.4f}" for k, m in self.meters.items())
    def fit(self):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            self.loss_m.update(loss.item())
            text = self.line()
            loss.backward()
            optimizer.step()
            print(text)
Trainer().fit()
""",
    "tuple alias": """\
hist = {"loss": [], "acc": []}
losses, accs = hist["loss"], hist["acc"]
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "tuple assigned meters in function": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
def train(epoch):
    losses, top1 = Meter(), Meter()
    meters = {"loss": losses, "top1": top1}
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        losses.update(loss.item(), len(x))
        n = meters["loss"].n
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(n)
for e in range(2):
    train(e)
""",
    "tuple assigned meters list": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
class Progress:
    def __init__(self, meters):
        self.meters = meters
    def summary(self):
        return " ".join(f"{m.sum / max(1, m.n):.4f}" for m in self.meters)
losses, top1 = Meter(), Meter()
progress = Progress([losses, top1])
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    losses.update(loss.item(), len(x))
    line = progress.summary()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "tuple container": """\
losses, accs = [], []
hist = {"loss": losses, "acc": accs}
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "tuple container defaultdict": """\
from collections import defaultdict, deque
losses = deque(maxlen=100)
hist = {"loss": losses}
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "vals append sum": """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    parts = [criterion(out, y), 0.1 * out.pow(2).mean()]
    vals = []
    for p in parts:
        vals.append(p.item())
    total = sum(vals)
    loss = sum(parts)
    loss.backward()
    optimizer.step()
    print(total, vals)
""",
    "wd schedule inside": """\
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for i, g in enumerate(optimizer.param_groups):
        g["lr"] = 0.1 * 0.9 ** it
        if i == 0:
            g["weight_decay"] = 0.01 * it
    lr, wd = optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]
    optimizer.step()
    print(lr, wd)
""",
}
