"""Right directive strings, with the values that the parser must find, in the compact form of `test_parser.shown`.

Each entry is a string, ``=>`` and its values: ``directive(arguments) / clause / clause …``. A clause is
``name:kind {modifiers} <iterators> (items) =expressions``. A dimension of a section is ``lower|length|stride``, and
``-`` stands for a part that is left out. Blanks set the steps of an item apart: ``a .b [i] [0|n|-]``.
"""

OMP = r"""
target => target
target nowait => target / nowait
target map(x) => target / map (x)
target map(to: x) => target / map:to (x)
target map(to:x,y) => target / map:to (x, y)
target map ( to : x , y ) => target / map:to (x, y)
target map(storage: x) => target / map:alloc (x)
target map(alloc: x) => target / map:alloc (x)
target map(tofrom: self.x) => target / map:tofrom (self .x)
target map(from: a.b.c[i].d[0:n]) => target / map:from (a .b .c [i] .d [0|n|-])
target map(always: x) => target / map {always} (x)
target map(always, to: x) => target / map:to {always} (x)
target map(to, always: x) => target / map:to {always} (x)
target map(always, present, close, tofrom: x) => target / map:tofrom {always, present, close} (x)
target map(mapper(deep), to: o) => target / map:to {mapper deep} (o)
target map(mapper(default), always, to: o, p) => target / map:to {mapper default, always} (o, p)
target map(iterator(i=0:n), to: x[i]) => target / map:to <i 0 n -> (x [i])
target map(iterator(i=0:n:2, j=a:f(b, c)), present, to: x[i][j])
    => target / map:to {present} <i 0 n 2, j a f(b, c) -> (x [i] [j])
target map(to: a[0:n]) => target / map:to (a [0|n|-])
target map(to: a[0:n:2]) => target / map:to (a [0|n|2])
target map(to: a[:n]) => target / map:to (a [-|n|-])
target map(to: a[l:]) => target / map:to (a [l|-|-])
target map(to: a[:]) => target / map:to (a [-|-|-])
target map(to: a[::]) => target / map:to (a [-|-|-])
target map(to: a[::2]) => target / map:to (a [-|-|2])
target map(to: a[...]) => target / map:to (a [...])
target map(to: a[..., 0:n]) => target / map:to (a [..., 0|n|-])
target map(to: a[0:n, 1:m]) => target / map:to (a [0|n|-, 1|m|-])
target map(to: a[i, 0:n], b[i][0:n]) => target / map:to (a [i, 0|n|-], b [i] [0|n|-])
target map(to: a[i][0:n].b) => target / map:to (a [i] [0|n|-] .b)
target map(to: a[(i, j)]) => target / map:to (a [i, j])
target map(to: a[i,]) => target / map:to (a [i,])
target map(to: a[0:n,]) => target / map:to (a [0|n|-])
target map(to: a[()]) => target / map:to (a [()])
target map(to: a["x:y"][0:n]) => target / map:to (a ["x:y"] [0|n|-])
target map(to: a[{'k': 1}['k']]) => target / map:to (a [{'k': 1}['k']])
target map(to: a[b[1:3][0]:n]) => target / map:to (a [b[1:3][0]|n|-])
target map(to: a[i if i < n else 0:n]) => target / map:to (a [i if i < n else 0|n|-])
target map(to: a[lambda: 0]) => target / map:to (a [lambda: 0])
target map(to: (a)[0:n]) => target / map:to (a [0|n|-])
target map(to: (a.b)[0:n]) => target / map:to (a .b [0|n|-])
target map(always, x) => target / map {always} (x)
target map(always, present, close, x, y) => target / map {always, present, close} (x, y)
target map(mapper(deep), o) => target / map {mapper deep} (o)
target map(x, always) => target / map (x, always)
target map(to: always) => target / map:to (always)
target update to(present) => target update / to (present)
target depend(in: x) => target / depend:in (x)
target depend(out: x) depend(in: y, z) => target / depend:out (x) / depend:in (y, z)
target depend(inout: x) nowait(flag) => target / depend:inout (x) / nowait =flag
target depend(mutexinoutset: x) depend(inoutset: y) => target / depend:mutexinoutset (x) / depend:inoutset (y)
target depend(depobj: o) => target / depend:depobj (o)
target depend(depobj: os[i], o) => target / depend:depobj (os [i], o)
target depend(iterator(i=0:n), in: a[i]) => target / depend:in <i 0 n -> (a [i])
target depend(in, iterator(i=0:n): a[i]) => target / depend:in <i 0 n -> (a [i])
target depend(out: omp_all_memory) => target / depend:out (omp_all_memory)
target depend(inout: omp_all_memory, x) => target / depend:inout (omp_all_memory, x)
target device(0) => target / device =0
target device(n + 1) => target / device =n + 1
target device(device_num: 2) => target / device {device_num} =2
target if(n > 3) => target / if =n > 3
target if(target: n > 3) => target / if {target} =n > 3
target if(x if y else z) => target / if =x if y else z
target if({1: 2}[1]) => target / if ={1: 2}[1]
target if(a[1:2] == "x") => target / if =a[1:2] == "x"
target if(None) => target / if =None
target if(True) => target / if =True
target private(x) firstprivate(y, z) => target / private (x) / firstprivate (y, z)
target is_device_ptr(d) has_device_addr(e[0:n]) => target / is_device_ptr (d) / has_device_addr (e [0|n|-])
target defaultmap(tofrom) => target / defaultmap:tofrom
target defaultmap(tofrom: scalar) defaultmap(none: aggregate) defaultmap(present:pointer)
    => target / defaultmap:tofrom {scalar} / defaultmap:none {aggregate} / defaultmap:present {pointer}
target defaultmap(storage: all) => target / defaultmap:alloc {all}
target priority(3) => target / priority =3
target, nowait, map(to: x), device(1) => target / nowait / map:to (x) / device =1
target map(to: x)nowait => target / map:to (x) / nowait
target map(to: x)nowait depend(out:x)device(3) => target / map:to (x) / nowait / depend:out (x) / device =3
target data map(to: a) map(from: out) => target data / map:to (a) / map:from (out)
target data map(tofrom: a[0:n]) use_device_ptr(a) => target data / map:tofrom (a [0|n|-]) / use_device_ptr (a)
target data use_device_addr(a, b) if(target data: x) device(1)
    => target data / use_device_addr (a, b) / if {target data} =x / device =1
target_data map(to: a) => target data / map:to (a)
target data map(alloc: a) nowait depend(in: a) nogroup
    => target data / map:alloc (a) / nowait / depend:in (a) / nogroup
target enter data map(to: x) => target enter data / map:to (x)
target enter data map(x) => target enter data / map (x)
target_enter_data map(alloc: x) nowait depend(out: x) => target enter data / map:alloc (x) / nowait / depend:out (x)
target_enter data map(tofrom: x) => target enter data / map:tofrom (x)
target enter_data map(to: x) if(target_enter_data: k) => target enter data / map:to (x) / if {target enter data} =k
target exit data map(from: x) => target exit data / map:from (x)
target exit data map(release: x) map(delete: y) device(d)
    => target exit data / map:release (x) / map:delete (y) / device =d
target exit data map(tofrom: x) => target exit data / map:tofrom (x)
target update to(x) => target update / to (x)
target update from(x[0:n:2]) => target update / from (x [0|n|2])
target update to(present: x) from(mapper(m): o) nowait depend(inout: x)
    => target update / to {present} (x) / from {mapper m} (o) / nowait / depend:inout (x)
target update to(iterator(i=0:4): x[i]) device(1) if(target update: 1)
    => target update / to <i 0 4 -> (x [i]) / device =1 / if {target update} =1
task => task
task depend(in: x[i]) => task / depend:in (x [i])
task depend(in: x[i-1], x[i+1]) depend(out: x[i]) => task / depend:in (x [i-1], x [i+1]) / depend:out (x [i])
task depend(in: ("HtoD", ip)) => task / depend:in (("HtoD", ip))
task depend(in: (n,)) => task / depend:in ((n,))
task depend(in: f(b[1:3])) => task / depend:in (f(b[1:3]))
task depend(in: f(b[1:3])[0:2]) => task / depend:in (f(b[1:3]) [0|2|-])
task depend(in: a + b) => task / depend:in (a + b)
task depend(in: -x) => task / depend:in (-x)
task depend(in: 3) => task / depend:in (3)
task depend(in: 00) => task / depend:in (00)
task depend(in: 123456789012345678901234567890) => task / depend:in (123456789012345678901234567890)
task depend(in: "a, b: (c]") => task / depend:in ("a, b: (c]")
task depend(in: 'it''s', "x") => task / depend:in ('it''s', "x")
task depend(in: '''a "b" (c''') => task / depend:in ('''a "b" (c''')
task depend(in: r"\d(", b"\x00)") => task / depend:in (r"\d(", b"\x00)")
task depend(in: "\\ \" )") => task / depend:in ("\\ \" )")
task depend(in: "\N{EM DASH}") => task / depend:in ("\N{EM DASH}")
task depend(in: f"{x}(", f"{{(") => task / depend:in (f"{x}(", f"{{(")
task depend(in: f"{x!r:>{w}}") => task / depend:in (f"{x!r:>{w}}")
task depend(in: f'{d["a)"]}') => task / depend:in (f'{d["a)"]}')
task depend(in: rf"\{x}") => task / depend:in (rf"\{x}")
task depend(in: [i for i in range(3)][0]) => task / depend:in ([i for i in range(3)] [0])
task depend(in: {i: j for i, j in z}) => task / depend:in ({i: j for i, j in z})
task depend(in: f(a=1, *b, **c)) => task / depend:in (f(a=1, *b, **c))
task depend(in: x.y.z[0].w) => task / depend:in (x .y .z [0] .w)
task depend(in: x . y [ 0 ]) => task / depend:in (x .y [0])
task depend(in: é[0:n], ñ.ü) => task / depend:in (é [0|n|-], ñ .ü)
task depend(in: 日本[語:n], x) => task / depend:in (日本 [語|n|-], x)
task depend(in: "日本", é[0:n]) => task / depend:in ("日本", é [0|n|-])
task depend(in: match, case, type, _) => task / depend:in (match, case, type, _)
task depend(in: None) => task / depend:in (None)
task depend(in: a[None:3]) => task / depend:in (a [None|3|-])
task depend(in: not x) => task / depend:in (not x)
task depend(in: 1.5e-3, 0x1F, 1_000, 2j) => task / depend:in (1.5e-3, 0x1F, 1_000, 2j)
task depend(in: x if y else z) => task / depend:in (x if y else z)
task detach(ev) => task / detach (ev)
task detach(ev) depend(out: x) priority(n) => task / detach (ev) / depend:out (x) / priority =n
task final(n < 2) if(task: n > 0) => task / final =n < 2 / if {task} =n > 0
task if(0) => task / if =0
task shared(total) private(a) firstprivate(b, c) => task / shared (total) / private (a) / firstprivate (b, c)
task default(none) => task / default:none
task default(shared) => task / default:shared
task default(firstprivate) => task / default:firstprivate
task default(private) => task / default:private
task in_reduction(+: s) => task / in_reduction:+ (s)
task in_reduction(max: s[0:n], t) => task / in_reduction:max (s [0|n|-], t)
task untied mergeable => task / untied / mergeable
task untied(True) mergeable(x) => task / untied =True / mergeable =x
task affinity(x[0:n], y) => task / affinity (x [0|n|-], y)
task affinity(iterator(i=0:3): x[i]) => task / affinity <i 0 3 -> (x [i])
taskloop => taskloop
taskloop grainsize(64) => taskloop / grainsize =64
taskloop grainsize(strict: n) => taskloop / grainsize {strict} =n
taskloop num_tasks(8) nogroup => taskloop / num_tasks =8 / nogroup
taskloop num_tasks(strict: 8) nogroup(x) => taskloop / num_tasks {strict} =8 / nogroup =x
taskloop reduction(+: s, t) reduction(*: p) => taskloop / reduction:+ (s, t) / reduction:* (p)
taskloop reduction(default, +: s) => taskloop / reduction:+ {default} (s)
taskloop reduction(mine: s) in_reduction(min: m) => taskloop / reduction:mine (s) / in_reduction:min (m)
taskloop shared(x) private(y) firstprivate(z) untied mergeable
    => taskloop / shared (x) / private (y) / firstprivate (z) / untied / mergeable
taskloop final(f) priority(1) if(taskloop: k) default(shared)
    => taskloop / final =f / priority =1 / if {taskloop} =k / default:shared
taskgroup => taskgroup
taskgroup task_reduction(+: s) => taskgroup / task_reduction:+ (s)
taskgroup task_reduction(+: s[0:n]) task_reduction(and: ok)
    => taskgroup / task_reduction:+ (s [0|n|-]) / task_reduction:and (ok)
taskgraph => taskgraph
taskgraph graph_id(k) graph_reset(r) if(taskgraph: c) nogroup
    => taskgraph / graph_id =k / graph_reset =r / if {taskgraph} =c / nogroup
taskgraph graph_reset => taskgraph / graph_reset
taskwait => taskwait
taskwait depend(in: x) => taskwait / depend:in (x)
taskwait depend(in: x, y) nowait => taskwait / depend:in (x, y) / nowait
taskwait nowait depend(in: x) => taskwait / nowait / depend:in (x)
taskyield => taskyield
barrier => barrier
flush => flush
flush(x, y) => flush(x, y)
flush acquire => flush / acquire
flush(x[0:n]) seq_cst => flush(x [0|n|-]) / seq_cst
cancel taskgroup => cancel taskgroup
cancel taskgroup if(x) => cancel taskgroup / if =x
cancel taskgroup if(cancel: x) => cancel taskgroup / if {cancel} =x
cancellation point taskgroup => cancellation point taskgroup
cancellation_point taskgroup => cancellation point taskgroup
depobj(o) depend(in: x) => depobj(o) / depend:in (x)
depobj(o) depend(mutexinoutset: a[0:n]) => depobj(o) / depend:mutexinoutset (a [0|n|-])
depobj(o) update(inout) => depobj(o) / update:inout
depobj(o) destroy => depobj(o) / destroy
depobj(o) destroy(o) => depobj(o) / destroy (o)
depobj ( o ) depend(out: x) => depobj(o) / depend:out (x)
interop init(targetsync: o) => interop / init:targetsync (o)
interop init(targetsync: o) device(1) depend(inout: x) => interop / init:targetsync (o) / device =1 / depend:inout (x)
interop use(o) => interop / use (o)
interop destroy(o) depend(in: x) => interop / destroy (o) / depend:in (x)
parallel => parallel
parallel num_threads(4) if(parallel: n > 1) proc_bind(close)
    => parallel / num_threads =4 / if {parallel} =n > 1 / proc_bind:close
parallel proc_bind(primary) shared(a) private(b) firstprivate(c) default(none)
    => parallel / proc_bind:primary / shared (a) / private (b) / firstprivate (c) / default:none
parallel masked => parallel masked
parallel master filter(0) => parallel masked / filter =0
parallel_masked num_threads(2) => parallel masked / num_threads =2
masked => masked
master => masked
masked filter(i) => masked / filter =i
single => single
single nowait => single / nowait
single private(x) firstprivate(y) copyprivate(z) => single / private (x) / firstprivate (y) / copyprivate (z)
single copyprivate(a, b) => single / copyprivate (a, b)
critical => critical
critical(name) => critical(name)
critical (name) hint(1) => critical(name) / hint =1
atomic => atomic
atomic read => atomic / read
atomic write => atomic / write
atomic update => atomic / update
atomic capture => atomic / capture
atomic update capture => atomic / update / capture
atomic compare capture weak => atomic / compare / capture / weak
atomic seq_cst update hint(0) => atomic / seq_cst / update / hint =0
sections => sections
sections nowait => sections / nowait
parallel sections => parallel sections
parallel sections num_threads(2) private(x) => parallel sections / num_threads =2 / private (x)
section => section
for => for
for reduction(+: s) => for / reduction:+ (s)
for schedule(static) => for / schedule:static
for schedule(static, 4) nowait => for / schedule:static =4 / nowait
for schedule(dynamic,n*2) => for / schedule:dynamic =n*2
for schedule(monotonic: dynamic, 4) => for / schedule:dynamic {monotonic} =4
for schedule(nonmonotonic, simd: guided) => for / schedule:guided {nonmonotonic, simd}
for schedule(runtime) collapse(2) => for / schedule:runtime / collapse =2
for order(concurrent) => for / order:concurrent
for order(reproducible: concurrent) => for / order:concurrent {reproducible}
for private(i) firstprivate(a) lastprivate(a) => for / private (i) / firstprivate (a) / lastprivate (a)
for lastprivate(x) shared(y) => for / lastprivate (x) / shared (y)
for simd safelen(8) simdlen(4) aligned(a, b: 64) nontemporal(c)
    => for simd / safelen =8 / simdlen =4 / aligned (a, b) =64 / nontemporal (c)
for simd aligned(a) => for simd / aligned (a)
simd => simd
simd reduction(max: m) => simd / reduction:max (m)
loop bind(teams) => loop / bind:teams
loop bind(parallel) order(concurrent) => loop / bind:parallel / order:concurrent
loop bind(thread) collapse(3) => loop / bind:thread / collapse =3
parallel for => parallel for
parallel for num_threads(4) reduction(+: s) if(parallel: x)
    => parallel for / num_threads =4 / reduction:+ (s) / if {parallel} =x
parallel for simd if(simd: y) if(parallel: x) => parallel for simd / if {simd} =y / if {parallel} =x
parallel for reduction(&&: a) reduction(||: b) => parallel for / reduction:and (a) / reduction:or (b)
parallel for reduction(&: a) reduction(|: b) reduction(^: c)
    => parallel for / reduction:& (a) / reduction:| (b) / reduction:^ (c)
parallel for reduction(.and.: a) reduction(.or.: b) reduction(.neqv.: c)
    => parallel for / reduction:and (a) / reduction:or (b) / reduction:^ (c)
parallel for reduction(iand: a) reduction(ior: b) reduction(ieor: c)
    => parallel for / reduction:& (a) / reduction:| (b) / reduction:^ (c)
parallel for reduction(and: a) reduction(or: b) reduction(min: c) reduction( * : d)
    => parallel for / reduction:and (a) / reduction:or (b) / reduction:min (c) / reduction:* (d)
parallel for reduction(own: x) => parallel for / reduction:own (x)
parallel loop => parallel loop
parallel_for => parallel for
teams distribute => teams distribute
teams distribute dist_schedule(static, 16) num_teams(4) thread_limit(32)
    => teams distribute / dist_schedule:static =16 / num_teams =4 / thread_limit =32
teams distribute simd => teams distribute simd
teams distribute parallel for => teams distribute parallel for
teams distribute parallel for simd => teams distribute parallel for simd
teams loop => teams loop
distribute => distribute
distribute simd => distribute simd
distribute parallel for => distribute parallel for
distribute parallel for simd => distribute parallel for simd
target parallel => target parallel
target parallel for => target parallel for
target parallel for simd => target parallel for simd
target parallel loop => target parallel loop
target simd => target simd
target loop => target loop
target teams => target teams
target teams distribute => target teams distribute
target teams distribute simd => target teams distribute simd
target teams distribute parallel for => target teams distribute parallel for
target teams distribute parallel for simd => target teams distribute parallel for simd
target_teams_distribute_parallel_for_simd => target teams distribute parallel for simd
target teams loop => target teams loop
target teams distribute parallel for map(tofrom: s) reduction(+: s) collapse(2)
    => target teams distribute parallel for / map:tofrom (s) / reduction:+ (s) / collapse =2
target teams distribute parallel for if(target: a) if(parallel: b) if(teams: c)
    => target teams distribute parallel for / if {target} =a / if {parallel} =b / if {teams} =c
target teams distribute parallel for num_threads(8) depend(inout: x) nowait
    => target teams distribute parallel for / num_threads =8 / depend:inout (x) / nowait
target teams loop map(to: a[0:n], b) map(from: c) private(t) lastprivate(l) bind(parallel)
    => target teams loop / map:to (a [0|n|-], b) / map:from (c) / private (t) / lastprivate (l) / bind:parallel
target parallel for is_device_ptr(p) has_device_addr(q) defaultmap(none) device(1) priority(2)
    => target parallel for / is_device_ptr (p) / has_device_addr (q) / defaultmap:none / device =1 / priority =2
"""

ACC = r"""
parallel => parallel
parallel copy(x) copyin(y) copyout(z) create(t) => parallel / copy (x) / copyin (y) / copyout (z) / create (t)
parallel pcopy(x) pcopyin(y) pcopyout(z) pcreate(t) => parallel / copy (x) / copyin (y) / copyout (z) / create (t)
parallel present_or_copy(x) present_or_copyin(y) present_or_copyout(z) present_or_create(t)
    => parallel / copy (x) / copyin (y) / copyout (z) / create (t)
parallel present(x) no_create(y) deviceptr(d) attach(p)
    => parallel / present (x) / no_create (y) / deviceptr (d) / attach (p)
parallel copyin(readonly: x, y[0:n]) copyout(zero: z) create(zero: t)
    => parallel / copyin {readonly} (x, y [0|n|-]) / copyout {zero} (z) / create {zero} (t)
parallel copy(self.x[0:n], m[i][0:n]) => parallel / copy (self .x [0|n|-], m [i] [0|n|-])
parallel async => parallel / async
parallel async(3) => parallel / async =3
parallel async(q) wait => parallel / async =q / wait
parallel wait(1, 2) => parallel / wait =1, 2
parallel wait(1) wait(2) => parallel / wait =1 / wait =2
parallel wait(queues: 1, 2) => parallel / wait {queues} =1, 2
parallel wait(devnum: d: 1) => parallel / wait {devnum d} =1
parallel wait(devnum: d: queues: 1, 2) => parallel / wait {devnum d, queues} =1, 2
parallel if(n > 3) self => parallel / if =n > 3 / self
parallel self(x) default(none) => parallel / self =x / default:none
parallel default(present) private(a) firstprivate(b) reduction(+: s)
    => parallel / default:present / private (a) / firstprivate (b) / reduction:+ (s)
parallel num_gangs(32) num_workers(4) vector_length(128)
    => parallel / num_gangs =32 / num_workers =4 / vector_length =128
parallel reduction(max: m) reduction(&&: ok) => parallel / reduction:max (m) / reduction:and (ok)
kernels copy(x) async(1) => kernels / copy (x) / async =1
serial copy(x) => serial / copy (x)
data copy(x) copyin(y) => data / copy (x) / copyin (y)
data present(x) if(k) async wait default(present) => data / present (x) / if =k / async / wait / default:present
data default(none) => data / default:none
host_data use_device(x, y) => host_data / use_device (x, y)
host_data use_device(x) if(k) if_present => host_data / use_device (x) / if =k / if_present
enter data copyin(x) create(y) attach(z) => enter data / copyin (x) / create (y) / attach (z)
enter_data copyin(x) async(1) wait(2) if(k) => enter data / copyin (x) / async =1 / wait =2 / if =k
exit data copyout(x) delete(y) detach(z) finalize => exit data / copyout (x) / delete (y) / detach (z) / finalize
exit data delete(x) async => exit data / delete (x) / async
update self(x) => update / self (x)
update host(x[0:n]) device(y) => update / self (x [0|n|-]) / device (y)
update device(x) if_present async(1) wait(2) if(k) => update / device (x) / if_present / async =1 / wait =2 / if =k
wait => wait
wait(1) => wait(1)
wait(1, q) async(3) if(k) => wait(1, q) / async =3 / if =k
wait(devnum: d: queues: 1, 2) => wait {devnum d, queues}(1, 2)
wait async => wait / async
init => init
init device_type(nvidia) device_num(0) if(k) => init / device_type:nvidia / device_num =0 / if =k
shutdown device_type(*) => shutdown / device_type:*
set default_async(2) => set / default_async =2
set device_num(1) device_type(nvidia) => set / device_num =1 / device_type:nvidia
set dtype(host) => set / device_type:host
parallel loop => parallel loop
parallel loop gang vector => parallel loop / gang / vector
parallel loop gang(num: 4) worker(num: 2) vector(length: 128)
    => parallel loop / gang {num} =4 / worker {num} =2 / vector {length} =128
parallel loop gang(4) worker(2) vector(128) collapse(2)
    => parallel loop / gang =4 / worker =2 / vector =128 / collapse =2
parallel loop copyin(a[0:n]) copyout(b) reduction(+: s) private(t) async(1)
    => parallel loop / copyin (a [0|n|-]) / copyout (b) / reduction:+ (s) / private (t) / async =1
parallel loop independent tile(8, 32) => parallel loop / independent / tile =8, 32
serial loop copy(x) => serial loop / copy (x)
kernels loop seq => kernels loop / seq
kernels loop auto copy(x) => kernels loop / auto / copy (x)
loop => loop
loop seq => loop / seq
loop gang worker vector private(t) reduction(+: s) => loop / gang / worker / vector / private (t) / reduction:+ (s)
loop vector(32) collapse(2) => loop / vector =32 / collapse =2
loop independent tile(4, n) => loop / independent / tile =4, n
cache(x) => cache(x)
cache(readonly: a[i:8], b) => cache {readonly}(a [i|8|-], b)
cache(a[i][0:n]) => cache(a [i] [0|n|-])
atomic => atomic
atomic update => atomic / update
atomic read => atomic / read
atomic capture => atomic / capture
"""
