// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc.c - the files' text, to the byte, and the requests for them
 *
 * Every test reads the files of a real core through proc_request(), as the
 * view socket does.
 */
#include <unistd.h>

#include "tests/unit/proc_fixture.h"

#include "kvmm/core/node/node.h"
#include "kvmm/proc/internal.h"

/* The core's own states have the same values as those of the files. */
static_assert((int)PROC_EXTENT_ABSENT == (int)EXT_ABSENT, "extent state");
static_assert((int)PROC_EXTENT_CREATING == (int)EXT_CREATING, "extent state");
static_assert((int)PROC_EXTENT_BACKED == (int)EXT_BACKED, "extent state");
static_assert((int)PROC_EXTENT_SPAN == (int)EXT_SPAN, "extent state");
static_assert((int)PROC_EXTENT_REVOKING == (int)EXT_REVOKING, "extent state");
static_assert((int)PROC_EXTENT_OFFLINE == (int)EXT_OFFLINE, "extent state");
static_assert((int)PROC_CLIENT_FREE == (int)CLI_FREE, "client state");
static_assert((int)PROC_CLIENT_ALIVE == (int)CLI_ALIVE, "client state");
static_assert((int)PROC_CLIENT_DETACHED == (int)CLI_DETACHED, "client state");
static_assert((int)PROC_CLIENT_DEAD == (int)CLI_DEAD, "client state");
static_assert(PROC_BLOCK_STATES == NR_BLK_STATES, "block states");

/* The value of a key in keyed text, or ~0. */
static u64 value_of(const char *text, const char *key)
{
	size_t len = strlen(key);
	const char *line;

	for (line = text; *line; line = strchrnul(line, '\n')) {
		line += *line == '\n';
		line += strspn(line, " ");
		if (!strncmp(line, key, len) && strchr(": ", line[len]))
			return strtoull(line + len + 1, NULL, 10);
	}
	return ~0ull;
}

/* ---- exact text ---- */

START_TEST(test_version_and_uptime)
{
	char want[128];

	snprintf(want, sizeof(want), "kvmm version 0.1.0 (gcc %s) uapi 2\n",
		 __VERSION__);
	ck_assert_str_eq(fx_cat("version"), want);
	ck_assert_str_eq(fx_cat("uptime"), "10.67 1.23\n");
}
END_TEST

START_TEST(test_status)
{
	char want[256];

	fx_attach(&fx, 1, "chat");
	fx_attach(&fx, 1, "chat");
	snprintf(want, sizeof(want),
		 "Name:\tkvmm\nPid:\t%d\nUid:\t%u\nBackend:\thost\n"
		 "Socket:\t/run/kvmm/attach.sock\nEpoch:\t18e9ab7d8967948b\n"
		 "Start:\tcold\nDomains:\t1\n"
		 "Clients:\t2\nDraining:\tno\nLogLevel:\tinfo\n", (int)getpid(), (u32)getuid());
	ck_assert_str_eq(fx_cat("status"), want);
}
END_TEST

START_TEST(test_meminfo_of_an_empty_pool)
{
	ck_assert_str_eq(fx_cat("meminfo"),
			 "GpuTotal:           1024 kB\n"
			 "GpuFree:            1024 kB\n"
			 "GpuAvailable:       1024 kB\n"
			 "ExtentsFree:        1024 kB\n"
			 "BlocksFree:            0 kB\n"
			 "Open:                  0 kB\n"
			 "Sealed:                0 kB\n"
			 "PrefixCached:          0 kB\n"
			 "Quiescing:             0 kB\n"
			 "Quarantine:            0 kB\n"
			 "Limbo:                 0 kB\n"
			 "Revoking:              0 kB\n"
			 "HardwareCorrupted:     0 kB\n"
			 "SpanTails:             0 kB\n"
			 "GpuOffline:            0 kB\n"
		"GpuReserved:           0 kB\n"
			 "Committed:             0 kB\n"
			 "Shared:                0 kB\n"
			 "Indexed:               0 kB\n"
			 "CommitLimit:        1024 kB\n"
			 "Committed_AS:          0 kB\n"
			 "Extentsize:           64 kB\n"
			 "HostTotal:             0 kB\n"
			 "HostFree:              0 kB\n"
			 "HostUsed:              0 kB\n"
			 "HostLimbo:             0 kB\n"
			 "HostNeeded:            0 kB\n"
			 "HostHugetlb:           0 kB\n"
			 "HostShmemHuge:         0 kB\n"
			 "HostLocked:            0 kB\n"
			 "SwapTotal:             0 kB\n"
			 "SwapFree:              0 kB\n"
			 "SwapUsed:              0 kB\n"
			 "SwapLimbo:             0 kB\n"
			 "SwapNeeded:            0 kB\n"
			 "SwapBad:               0 kB\n");
}
END_TEST

START_TEST(test_zoneinfo_of_an_empty_pool)
{
	const char *text = fx_cat("zoneinfo");

	ck_assert_str_eq(text,
			 "Node 0, zone     gpu0\n"
			 "  pages free     256\n"
			 "        min      0\n"
			 "        low      0\n"
			 "        high     0\n"
			 "        spanned  256\n"
			 "        present  256\n"
			 "        managed  256\n"
			 "      nr_pages_free_extents 256\n"
			 "      nr_pages_free       0\n"
			 "      nr_pages_open       0\n"
			 "      nr_pages_sealed     0\n"
			 "      nr_pages_cached     0\n"
			 "      nr_pages_quiescing  0\n"
			 "      nr_pages_quarantine 0\n"
			 "      nr_pages_limbo      0\n"
			 "      nr_pages_revoking   0\n"
			 "      nr_pages_poison     0\n"
			 "      nr_pages_tails      0\n"
			 "      nr_pages_offline    0\n"
		"      nr_pages_reserved   0\n"
			 "  extents\n"
			 "        size     16\n"
			 "        total    16\n"
			 "        free     16\n"
		"        online   16\n"
		"        device   works\n");
}
END_TEST

START_TEST(test_buddyinfo_of_an_empty_pool)
{
	ck_assert_str_eq(fx_cat("buddyinfo"),
			 "Node 0, zone     gpu0 "
			 "     0      0      0      0      1      0      0 "
			 "     0      0      0      0 \n");
}
END_TEST

START_TEST(test_sys_vm_is_one_value)
{
	ck_assert_str_eq(fx_cat("sys/vm/pool_bytes"), "1048576\n");
	ck_assert_str_eq(fx_cat("pool/gpu0/size"), "1048576\n");
	ck_assert_str_eq(fx_cat("sys/vm/extent_size"), "65536\n");
	ck_assert_str_eq(fx_cat("sys/vm/max_seqs"), "600\n");
	ck_assert_str_eq(fx_cat("sys/vm/starve_ns"), "3000000000\n");
}
END_TEST

static u32 mode_of(const char *path)
{
	struct proc_entry e;
	u32 i;

	for (i = 0; proc_get_entry(i, &e); i++)
		if (!strcmp(e.path, path))
			return e.mode;
	return 0;
}

/* Exactly the tunables of the core are writable, and a new value is shown. */
START_TEST(test_tunables)
{
	struct proc_entry e;
	u32 i, nr = 0;

#define x(type, name, ...) ck_assert_uint_eq(mode_of("sys/vm/" #name), 0644);
	KVMM_TUNABLES(x)
#undef x
	for (i = 0; proc_get_entry(i, &e); i++)
		nr += !strncmp(e.path, "sys/vm/", 7) && e.mode == 0644;
	ck_assert_uint_eq(nr, CORE_NR_TUNABLES);
	ck_assert_str_eq(fx_cat("sys/vm/cache_floor"), "0\n");
	ck_assert_int_eq(core_tune(fx.core, fx.now, CORE_TUNE_cache_floor, 25),
			 0);
	ck_assert_str_eq(fx_cat("sys/vm/cache_floor"), "25\n");
}
END_TEST

START_TEST(test_domain_files)
{
	u32 client;

	ck_assert_int_eq(fx_try_attach(&fx, 1, "chat", 500000, &client), 0);
	fx_prefill(&fx, client, 40, 100);
	ck_assert_str_eq(fx_cat("domain/chat/memory.max"), "gpu0 500000\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.current"),
			 "gpu0 13824\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.peak"), "gpu0 13824\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.capacity"),
			 "gpu0 1048576\n");
	fx.core->domains[0].nr_low_events = 1;
	fx.core->domains[0].nr_high_events = 2;
	fx.core->domains[0].nr_max_events = 3;
	fx.core->domains[0].nr_preempted = 5;
	ck_assert_str_eq(fx_cat("domain/chat/memory.events"),
			 "low 1\nhigh 2\nmax 3\npreempt 5\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.min"), "gpu0 0\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.low"), "gpu0 0\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.high"), "gpu0 max\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.weight"), "100\n");
	ck_assert_str_eq(fx_cat("domain/chat/status"),
			 "Name:\tchat\nId:\t0\nTenant:\t1\nPool:\tgpu0\nBlockTokens:\t16\n"
			 "BlockBytes:\t4608\nClients:\t1\nSpans:\t1\n"
			 "Running:\t1\nWaiting:\t0\nLeases:\t0\n"
			 "KvCurrent:\t      13 kB\nKvPeak:\t      13 kB\n"
			 "KvReserved:\t       0 kB\nKvLeased:\t       0 kB\n"
			 "CommitLimit:\t     486 kB\nCommitted_AS:\t      31 kB\n");
}
END_TEST

/* The format of the kernel's files, for their readers. */
/* Every byte is as the kernel's seq_printf() would print it. */
START_TEST(test_slabinfo)
{
	static const char head[] =
		"slabinfo - version: 2.1\n"
		"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
		" : tunables <limit> <batchcount> <sharedfactor>"
		" : slabdata <active_slabs> <num_slabs> <sharedavail>\n";
	const char *text = fx_cat("slabinfo");
	u32 client;

	ck_assert_str_eq(text, head);
	client = fx_attach(&fx, 1, "chat");
	fx_attach(&fx, 1, "a-name-longer-than-seventeen");
	fx_prefill(&fx, client, 40, 100);
	text = fx_cat("slabinfo");
	ck_assert(!strncmp(text, head, strlen(head)));
	ck_assert_str_eq(text + strlen(head),
			 "chat                   3     71   4608   71   80"
			 " : tunables    0    0    0 : slabdata      1      1      0\n"
			 "a-name-longer-than-seventeen      0      0   4608    0    0"
			 " : tunables    0    0    0 : slabdata      0      0      0\n");
}
END_TEST

/* Each domain has the lines of its own file, after its number. */
START_TEST(test_lru_gen)
{
	char want[160], *line, *own, *save = NULL;
	u32 nr = 0;

	fx_prefill(&fx, fx_attach(&fx, 1, "chat"), 40, 1);
	fx_attach(&fx, 1, "code");
	own = strdup(fx_cat("domain/chat/lru_gen"));
	ck_assert_ptr_nonnull(own);
	line = strtok_r(own, "\n", &save);
	for (line = strtok_r(NULL, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save), nr++) {
		snprintf(want, sizeof(want), "\n     0 %s\n", line);
		ck_assert_msg(strstr(fx_cat("lru_gen"), want), "%s", want);
		snprintf(want, sizeof(want), "\n     1 %4u ", nr);
		ck_assert_msg(strstr(fx_cat("lru_gen"), want), "%s", want);
	}
	ck_assert_uint_eq(nr, CORE_LRU_TIERS);
	free(own);
}
END_TEST

START_TEST(test_pressure)
{
	static const char zero[] =
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
	static const u32 avg[3] = { 1234, 56, 7 };
	struct kv_psi *g;
	u32 client, i;

	ck_assert_int_eq(fx_try_attach(&fx, 1, "chat", 500000, &client), 0);
	ck_assert_str_eq(fx_cat("pressure/memory"), zero);
	g = &fx.core->domains[0].psi;
	for (i = 0; i < 3; i++)
		g->avg[CORE_PSI_MEMORY][CORE_PSI_SOME][i] = (avg[i] * 2048 + 50) / 100 + 1;
	g->total[CORE_PSI_MEMORY][CORE_PSI_SOME] = 5000999;
	g->total[CORE_PSI_MEMORY][CORE_PSI_FULL] = 4000;
	g->total[CORE_PSI_IO][CORE_PSI_FULL] = 3000;
	fx.core->head->psi.total[CORE_PSI_CPU][CORE_PSI_SOME] = 7000;
	ck_assert_str_eq(fx_cat("domain/chat/io.pressure"),
			 "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
			 "full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n");
	ck_assert_str_eq(fx_cat("pressure/cpu"),
			 "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
			 "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
	ck_assert_str_eq(fx_cat("pressure/io"), zero);
	ck_assert_str_eq(fx_cat("pressure/memory"), zero);
	ck_assert_str_eq(fx_cat("domain/chat/memory.pressure"),
			 "some avg10=12.34 avg60=0.56 avg300=0.07 total=5000\n"
			 "full avg10=0.00 avg60=0.00 avg300=0.00 total=4\n");
}
END_TEST

/* The text of a pressure trigger, as the kernel's sscanf() takes it. */
START_TEST(test_trigger_parse)
{
	static const struct {
		const char *path;
		const char *text;
		int	err;
	} cases[] = {
		{ "pressure/memory", "some 150000 1000000", 0 },
		{ "pressure/io", "full 150000 1000000", 0 },
		{ "/pressure/cpu", "some  150000\t1000000 x", 0 },
		{ "domain/chat/io.pressure", "full 150000 1000000\n", 0 },
		{ "pressure/memory", "", -EINVAL },
		{ "pressure/memory", "some", -EINVAL },
		{ "pressure/memory", "some 150000", -EINVAL },
		{ "pressure/memory", " some 150000 1000000", -EINVAL },
		{ "pressure/memory", "SOME 150000 1000000", -EINVAL },
		{ "pressure/memory", "most 150000 1000000", -EINVAL },
		{ "pressure", "some 150000 1000000", -EISDIR },
		{ "pressure/disk", "some 150000 1000000", -ENOENT },
		{ "domain/chatt/memory.pressure", "some 1 1", -ENOENT },
		{ "meminfo", "some 150000 1000000", -EOPNOTSUPP },
		{ "sys/vm/swappiness", "some 150000 1000000", -EOPNOTSUPP },
		{ "domain/chat/memory.max", "some 1 1", -EOPNOTSUPP },
	};
	struct proc_trigger t;
	u32 i;

	fx_attach(&fx, 1, "chat");
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		int err = proc_trigger_parse(fx.proc, PROC_ALL, cases[i].path,
					     cases[i].text, &t);

		ck_assert_msg(err == cases[i].err, "%s '%s': %d",
			      cases[i].path, cases[i].text, err);
		if (err)
			continue;
		ck_assert_uint_eq(t.threshold_ns, 150000000);
		ck_assert_uint_eq(t.window_ns, 1000000000);
		ck_assert_uint_eq(t.full, *cases[i].text == 'f');
		ck_assert_uint_eq(t.of_domain, *cases[i].path == 'd');
		ck_assert_uint_eq(t.res, strstr(cases[i].path, "cpu") ?
				  CORE_PSI_CPU : i % 2 ? CORE_PSI_IO :
				  CORE_PSI_MEMORY);
	}
}
END_TEST

START_TEST(test_no_limit_is_max)
{
	fx_attach(&fx, 1, "chat");
	ck_assert_str_eq(fx_cat("domain/chat/memory.max"), "gpu0 max\n");
	ck_assert_str_eq(fx_cat("domain/chat/memory.current"), "gpu0 0\n");
}
END_TEST

START_TEST(test_domains_table)
{
	struct kv_domain *d;
	u32 client;

	ck_assert_int_eq(fx_try_attach(&fx, 1, "chat", 512000, &client), 0);
	fx_prefill(&fx, client, 40, 100);
	fx_attach(&fx, 2, "code");
	d = fx.core->domains;
	d[0].min_bytes = 32768;
	d[1].low_bytes = 65536;
	d[1].weight = 250;
	d[0].psi.avg[CORE_PSI_MEMORY][CORE_PSI_SOME][0] = (1234 * 2048 + 50) / 100 + 1;
	d[0].psi.avg[CORE_PSI_MEMORY][CORE_PSI_FULL][0] = (7 * 2048 + 50) / 100 + 1;
	ck_assert_str_eq(fx_cat("domains"),
"  id tenant clients  spans running waiting tokens block_bytes  current_kb     peak_kb      max_kb      min_kb      low_kb     high_kb weight some_avg10 full_avg10   cached_kb  leases   leased_kb  prompt_tokens  output_tokens first_tokens     first_ms  pool name\n"
"   0      1       1      1       1       0     16        4608          13          13         500          32           0         max    100      12.34       0.07           0       0           0             40              0            1            0  gpu0 chat\n"
"   1      2       1      0       0       0     16        4608           0           0         max           0          64         max    250       0.00       0.00           0       0           0              0              0            0            0  gpu0 code\n");
}
END_TEST

START_TEST(test_clients_table)
{
	u32 a = fx_attach(&fx, 1, "chat");
	u32 b = fx_attach(&fx, 2, "code");
	u64 seq = fx_prefill(&fx, a, 40, 100);

	fx_open(&fx, b, 10, 10);
	fx_begin(&fx, a, seq, 1);
	fx.now += 7000000;
	ck_assert_str_eq(fx_cat("clients"),
" id     pid    uid tenant state    domain    seqs running waiting  leases steps      begun pinned_ms   blocks draining leader shard comm\n"
"  0    1000    500      1 alive         0       1       1       0       0     1          2         7        3       no      0     0 kvrt\n"
"  1    1001    501      2 alive         1       1       0       1       0     0          0         0        0       no      1     0 my\\040engine\n");
	/* A step that began after the clock was read must not have an age of -1. */
	fx.now -= 8000000;
	ck_assert_uint_eq(value_of(fx_cat("client/0/status"), "PinnedMs"), 0);
}
END_TEST

START_TEST(test_client_status)
{
	u32 a = fx_attach(&fx, 1, "chat");

	fx_prefill(&fx, a, 40, 100);
	ck_assert_str_eq(fx_cat("client/0/status"),
			 "Name:\tkvrt\nId:\t0\nState:\talive\nPid:\t1000\n"
			 "Uid:\t500\nTenant:\t1\nDomain:\tchat\nSeqs:\t1\n"
			 "Running:\t1\nWaiting:\t0\nLeases:\t0\nOpenSteps:\t0\n"
			 "PinnedMs:\t0\nMappings:\t3\nDraining:\tno\n"
			 "Leader:\t0\nShard:\t0\n");
}
END_TEST

/* A client that the shell no longer knows has no process. */
START_TEST(test_client_without_process)
{
	fx_attach(&fx, 1, "a");
	fx_attach(&fx, 1, "b");
	fx_attach(&fx, 1, "c");
	ck_assert_uint_eq(value_of(fx_cat("client/2/status"), "Pid"), 0);
	ck_assert_ptr_nonnull(strstr(seq_text(&fx.out), "Name:\t-\n"));
}
END_TEST

START_TEST(test_seqs_table)
{
	u32 a = fx_attach(&fx, 1, "chat");
	char want[1024];
	u64 events[NR_CORE_EVENTS], sum = 0, seq;
	struct core_seq_view v;
	u32 i;

	seq = fx_prefill(&fx, a, 40, 100);
	ck_assert_int_eq(core_get_seq(fx.core, KVMM_SEQ_INDEX(seq), &v), 0);
	core_get_events(fx.core, events);
	for (i = 0; i < NR_CORE_EVENTS; i++)
		sum += events[i];
	snprintf(want, sizeof(want),
"# begin %llu\n"
"   seq    gen family state     prio   tokens   prompt      max  blocks  shared epoch preempted   arrival\n"
"%6u %6u %6u ready        0       40       40       64       3       0 %5u         0 %9llu\n"
"# end %llu\n", (unsigned long long)sum, KVMM_SEQ_INDEX(seq),
		 KVMM_SEQ_GEN(seq), v.family, v.seq_epoch,
		 (unsigned long long)v.arrival, (unsigned long long)sum);
	ck_assert_str_eq(fx_cat("client/0/seqs"), want);
}
END_TEST

/* ---- numbers ---- */

static void check_partition(void)
{
	static const char * const keys[] = {
		"ExtentsFree", "BlocksFree", "Open", "Sealed", "PrefixCached",
		"Quiescing", "Quarantine", "Limbo", "Revoking",
		"HardwareCorrupted", "SpanTails", "GpuReserved",
	};
	const char *text = fx_cat("meminfo");
	u64 sum = 0;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		ck_assert_uint_ne(value_of(text, keys[i]), ~0ull);
		sum += value_of(text, keys[i]);
	}
	ck_assert_uint_eq(sum, value_of(text, "GpuTotal"));
	ck_assert_uint_eq(sum, 1024);
	ck_assert_uint_le(value_of(text, "GpuAvailable"), sum);
}

/* Blocks of 4.5 kB: rounding must not break the identity. */
START_TEST(test_parts_add_up_in_every_state)
{
	u32 a = fx_attach(&fx, 1, "chat");
	u64 seq[8], step;
	u32 i;

	check_partition();
	for (i = 0; i < 8; i++) {
		seq[i] = fx_prefill(&fx, a, 17 + 13 * i, 1000 * i);
		check_partition();
	}
	ck_assert_uint_gt(value_of(fx_cat("meminfo"), "Sealed"), 0);
	ck_assert_uint_gt(value_of(fx_cat("meminfo"), "Open"), 0);
	ck_assert_uint_gt(value_of(fx_cat("meminfo"), "Indexed"), 0);
	step = fx_begin(&fx, a, seq[0], 20);
	check_partition();
	core_client_dead(fx.core, fx.now, a);
	check_partition();
	ck_assert_uint_gt(value_of(fx_cat("meminfo"), "Quarantine"), 0);
	core_client_quiet(fx.core, fx.now, a);
	check_partition();
	ck_assert_uint_gt(value_of(fx_cat("meminfo"), "PrefixCached"), 0);
	ck_assert_uint_eq(value_of(fx_cat("meminfo"), "Quarantine"), 0);
	(void)step;
}
END_TEST

/* Reserved blocks are not available; cached blocks are. */
START_TEST(test_available)
{
	u32 a = fx_attach(&fx, 1, "chat");
	const char *text;
	u64 seq;

	fx_close(&fx, a, fx_prefill(&fx, a, 40, 100));
	seq = fx_open(&fx, a, 100, 10);
	fx_match(&fx, a, seq, 100, 7000);
	text = fx_cat("meminfo");
	ck_assert_uint_eq(value_of(text, "Committed"), 7 * 4608 >> 10);
	ck_assert_uint_eq(value_of(text, "PrefixCached"), 9);
	ck_assert_uint_le(value_of(text, "GpuAvailable"),
			  value_of(text, "GpuFree") + 9 - 31);
	ck_assert_uint_ge(value_of(text, "GpuAvailable"),
			  value_of(text, "GpuFree") + 9 - 33);
}
END_TEST

START_TEST(test_vmstat_counts)
{
	u32 a = fx_attach(&fx, 1, "chat");
	u64 seq = fx_prefill(&fx, a, 40, 100);
	const char *text = fx_cat("vmstat");

	ck_assert_uint_eq(value_of(text, "nr_extents"), 16);
	ck_assert_uint_eq(value_of(text, "nr_clients"), 1);
	ck_assert_uint_eq(value_of(text, "nr_seqs"), 1);
	ck_assert_uint_eq(value_of(text, "nr_seqs_running"), 1);
	ck_assert_uint_eq(value_of(text, "nr_blocks_sealed"), 2);
	ck_assert_uint_eq(value_of(text, "nr_blocks_open"), 1);
	ck_assert_uint_eq(value_of(text, "pgalloc"), 3);
	ck_assert_uint_eq(value_of(text, "pgseal"), 2);
	ck_assert_uint_eq(value_of(text, "seq_open"), 1);
	ck_assert_uint_eq(value_of(text, "client_attach"), 1);
	fx_prefill(&fx, fx_attach(&fx, 2, "code"), 100, 7);
	text = fx_cat("vmstat");
	ck_assert_uint_eq(value_of(text, "nr_blocks_sealed"), 2 + 6);
	ck_assert_uint_eq(value_of(text, "nr_seqs"), 2);
	ck_assert_uint_eq(value_of(text, "nr_domains"), 2);
	fx_close(&fx, a, seq);
	text = fx_cat("vmstat");
	ck_assert_uint_eq(value_of(text, "nr_seqs"), 1);
	ck_assert_uint_eq(value_of(text, "nr_blocks_cached"), 2);
	ck_assert_uint_eq(value_of(text, "seq_close"), 1);
}
END_TEST

START_TEST(test_prefixcache_counts)
{
	u32 a = fx_attach(&fx, 1, "chat");

	fx_close(&fx, a, fx_prefill(&fx, a, 40, 100));
	fx_prefill(&fx, a, 40, 100);
	ck_assert_str_eq(fx_cat("prefixcache"),
			 "Indexed:               9 kB\n"
			 "Cached:                0 kB\n"
			 "Lookups:               2\n"
			 "Hits:                  1\n"
			 "HitTokens:            32\n"
			 "MissTokens:           48\n"
			 "RestoreHitTokens:      0\n"
			 "RestoreMissTokens:     0\n"
			 "Inserted:              2\n"
			 "Duplicates:            0\n"
			 "Evicted:               0\n");
}
END_TEST

/* count << order over buddyinfo is the number of free extents. */
START_TEST(test_buddyinfo_arithmetic)
{
	u32 a = fx_attach(&fx, 1, "chat");
	const char *p;
	u64 sum = 0;
	u32 order;

	fx_prefill(&fx, a, 16 * 20, 100);
	p = strstr(fx_cat("buddyinfo"), "gpu0") + 4;
	for (order = 0; order < 11; order++) {
		char *end;

		sum += strtoull(p, &end, 10) << order;
		ck_assert_ptr_ne(end, p);
		p = end;
	}
	ck_assert_str_eq(p, " \n");
	ck_assert_uint_lt(sum, 16);
	ck_assert_uint_eq(sum, value_of(fx_cat("vmstat"), "nr_free_extents"));
}
END_TEST

/* Runs of 3, 4 and 7 extents: 2+1, 4, 4+2+1. */
START_TEST(test_buddyinfo_cuts_runs)
{
	fx.core->extents[3].state = EXT_SPAN;
	fx.core->extents[8].state = EXT_SPAN;
	fx.core->extents[15].state = EXT_CREATING;
	ck_assert_str_eq(fx_cat("buddyinfo"),
			 "Node 0, zone     gpu0 "
			 "     2      2      2      0      0      0      0 "
			 "     0      0      0      0 \n");
}
END_TEST

START_TEST(test_extentinfo)
{
	u32 a = fx_attach(&fx, 1, "chat");
	const char *text;

	fx_prefill(&fx, a, 40, 100);
	text = fx_cat("extentinfo");
	ck_assert_ptr_nonnull(strstr(text, "\nextent state    tenant domain  blocks    free    open  cached pinned quarantine poison mapped          \n"));
	ck_assert_ptr_nonnull(strstr(text, "\n     0 span          1      0      71      68       1       0      0          0      0 0000000000000001\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n    15 absent        -      -       0       0       0       0      0          0      0 0000000000000000\n# end "));
}
END_TEST

#define SPAN_EXTENTS	5	/* extents of a span; each shows the counts of the span */

/* One column of extentinfo, summed over the spans of a domain. */
static u64 extents_sum(u32 domain, u32 column)
{
	const char *line = strchr(strchr(fx_cat("extentinfo"), '\n') + 1, '\n');
	unsigned int n[9];
	u64 sum = 0;

	for (; line[1] != '#'; line = strchr(line + 1, '\n')) {
		if (sscanf(line + 1, "%u %*s %*s %u %u %u %u %u %u %u %u", n,
			   n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7,
			   n + 8) == 9 && n[1] == domain)
			sum += n[column];
	}
	ck_assert_uint_eq(sum % SPAN_EXTENTS, 0);
	return sum / SPAN_EXTENTS;
}

enum { COL_BLOCKS = 2, COL_FREE, COL_OPEN, COL_CACHED, COL_PINNED, COL_QUARANTINE, COL_POISON };

/* States that spans do not count: the file counts them block by block. */
START_TEST(test_extentinfo_rare_states)
{
	u32 a = fx_attach(&fx, 1, "chat"), b = fx_attach(&fx, 2, "code");
	u64 seq, quarantine, cached;

	fx_prefill(&fx, b, 100, 500);
	seq = fx_prefill(&fx, a, 300, 100);
	fx_begin(&fx, a, seq, 20);
	core_client_dead(fx.core, fx.now, a);
	quarantine = value_of(fx_cat("vmstat"), "nr_blocks_quarantine");
	cached = value_of(fx_cat("vmstat"), "nr_blocks_cached");
	ck_assert_uint_gt(quarantine, 0);
	ck_assert_uint_eq(extents_sum(0, COL_QUARANTINE), quarantine);
	ck_assert_uint_eq(extents_sum(1, COL_QUARANTINE), 0);
	ck_assert_uint_eq(extents_sum(0, COL_CACHED), cached);
	ck_assert_uint_eq(extents_sum(0, COL_POISON), 0);
	ck_assert_uint_ge(extents_sum(0, COL_BLOCKS), 71);
	/* Set by hand: nothing here has errors, or copies. */
	fx.core->domains[1].dev.nr[BLK_POISON] = 1;
	fx.core->domains[1].dev.nr[BLK_LIMBO] = 1;
	fx.core->blocks[13].state = BLK_POISON;
	fx.core->blocks[12].state = BLK_LIMBO;
	ck_assert_uint_eq(extents_sum(1, COL_POISON), 1);
	ck_assert_uint_eq(extents_sum(1, COL_PINNED), 1);
	ck_assert_uint_eq(extents_sum(0, COL_POISON), 0);
}
END_TEST

static Suite *proc_suite(void)
{
	Suite *s = suite_create("proc");
	TCase *tc = tcase_create("text");

	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
	tcase_add_test(tc, test_version_and_uptime);
	tcase_add_test(tc, test_status);
	tcase_add_test(tc, test_meminfo_of_an_empty_pool);
	tcase_add_test(tc, test_zoneinfo_of_an_empty_pool);
	tcase_add_test(tc, test_buddyinfo_of_an_empty_pool);
	tcase_add_test(tc, test_sys_vm_is_one_value);
	tcase_add_test(tc, test_tunables);
	tcase_add_test(tc, test_domain_files);
	tcase_add_test(tc, test_slabinfo);
	tcase_add_test(tc, test_lru_gen);
	tcase_add_test(tc, test_pressure);
	tcase_add_test(tc, test_trigger_parse);
	tcase_add_test(tc, test_no_limit_is_max);
	tcase_add_test(tc, test_domains_table);
	tcase_add_test(tc, test_clients_table);
	tcase_add_test(tc, test_client_status);
	tcase_add_test(tc, test_client_without_process);
	tcase_add_test(tc, test_seqs_table);
	suite_add_tcase(s, tc);

	tc = tcase_create("figures");
	tcase_set_tags(tc, "unit proc");
	tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
	tcase_add_test(tc, test_parts_add_up_in_every_state);
	tcase_add_test(tc, test_available);
	tcase_add_test(tc, test_vmstat_counts);
	tcase_add_test(tc, test_prefixcache_counts);
	tcase_add_test(tc, test_buddyinfo_arithmetic);
	tcase_add_test(tc, test_buddyinfo_cuts_runs);
	tcase_add_test(tc, test_extentinfo);
	tcase_add_test(tc, test_extentinfo_rare_states);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(proc_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
