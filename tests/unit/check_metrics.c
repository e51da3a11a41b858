// SPDX-License-Identifier: Apache-2.0
/*
 * check_metrics.c - the daemon's metrics: format, values, documentation
 *
 * The page of a real core with domains, tenants and swap areas is read by the
 * strict reader of tests/prom.h; its values are compared with vmstat and
 * meminfo, and its families with Documentation/metrics.md, both ways.
 */
#include <math.h>
#include <kvmm/version.h>

#include "tests/prom.h"
#include "tests/unit/page.h"
#include "tests/unit/proc_fixture.h"

#define US	500ull
#define THEM	501ull

static struct prom prom;

static int area_info(void *arg, u32 i, struct proc_swap_area *info)
{
	if (i)
		return -ENOENT;
	info->path = "/a \"path\"\nof \\ many";
	info->device = false;
	info->lost = false;
	info->index = 1;
	return 0;
}

static int swap_info(void *arg, struct proc_swap_info *info)
{
	memset(info, 0, sizeof(*info));
	info->pid = 4711;
	info->area[1][SWAPD_AREA_CNT_rd_ns] = 12000000034ull;
	info->area[1][SWAPD_AREA_CNT_wr_depth] = 7;
	info->shell[1].busy_ns = 5;
	return 0;
}

/* Two tenants and three domains; one name needs escapes. */
static void setup(void)
{
	u32 us, area;

	fx_setup_tiers(FX_EXTENTS, 4, 8);
	fx.swap_area = area_info;
	fx.swap_info = swap_info;
	ck_assert_int_eq(core_area_add(fx.core, fx.now, 8 * FX_EXTENT_SIZE, 0,
				       &area), 0);
	us = fx_attach(&fx, US, "chat");
	fx_attach(&fx, US, "a \"b\"\\n{}");
	fx_attach(&fx, THEM, "chat");
	fx_close(&fx, us, fx_prefill(&fx, us, 40, 1));
	fx_prefill(&fx, us, 40, 7000);
}

static void teardown(void)
{
	prom_free(&prom);
	fx_teardown();
}

/* A small pool without lower tiers. */
static void setup_bare(void)
{
	fx_setup();
}

static void setup_large(void)
{
	fx_setup_sized(FX_EXTENTS_MAX);
}

/* Read and parse the page. */
static const char *metrics(void)
{
	const char *text = fx_cat("metrics");

	prom_free(&prom);
	memset(&prom, 0, sizeof(prom));
	ck_assert_msg(prom_read(&prom, text), "%s", prom.why);
	return text;
}

/* The value of @series; the test fails if there is none. */
static double value(const char *text, const char *series)
{
	size_t len = strlen(series);
	const char *p = text;

	while ((p = strstr(p, series))) {
		if (p[-1] == '\n' && p[len] == ' ')
			return strtod(p + len, NULL);
		p++;
	}
	ck_abort_msg("no %s", series);
	return 0;
}

START_TEST(test_page)
{
	const char *text = metrics();

	ck_assert_uint_gt(prom.nr, 200);
	ck_assert_ptr_nonnull(strstr(text, "kvmm_info{version=\"" KVMM_VERSION "\",abi=\""));
	value(text, "kvmm_domain_clients{domain=\"chat@0\",tenant=\"500\",pool=\"gpu0\"}");
	value(text, "kvmm_domain_clients{domain=\"a\\\\040\\\"b\\\"\\\\134n{}\",tenant=\"500\",pool=\"gpu0\"}");
	ck_assert_double_eq(value(text, "kvmm_swap_area_rd_seconds_total{area=\"0\",path=\"/a\\\\040\\\"path\\\"\\\\012of\\\\040\\\\134\\\\040many\"}"),
			    12.000000034);
	ck_assert_ptr_nonnull(strstr(text, "# TYPE kvmm_swap_area_wr_depth gauge\n"));
	ck_assert(isinf(value(text, "kvmm_domain_memory_max_bytes{domain=\"chat@0\",tenant=\"500\",pool=\"gpu0\"}")));
	ck_assert_double_eq(value(text, "kvmm_uptime_seconds"), 10.67);
	ck_assert_double_eq(value(text, "kvmm_mm_idle_seconds_total"), 1.23);
}
END_TEST

/* Each line of vmstat is a metric with that value. */
START_TEST(test_as_vmstat)
{
	char *vmstat = strdup(fx_cat("vmstat")), *save = NULL, *line;
	const char *text = metrics();
	char name[128], series[160];
	unsigned long long v;
	double scale;
	size_t len;
	u32 nr = 0;

	for (line = strtok_r(vmstat, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		ck_assert_int_eq(sscanf(line, "%127s %llu", name, &v), 2);
		if (!strncmp(name, "nr_blocks_", 10))
			continue;
		len = strlen(name);
		scale = len > 3 && !strcmp(name + len - 3, "_ns") ? 1e-9 : 1;
		if (scale < 1)
			snprintf(series, sizeof(series), "kvmm_%.*s_seconds_total",
				 (int)len - 3, name);
		else if (!strncmp(name, "nr_", 3))
			snprintf(series, sizeof(series), "kvmm_%s", name + 3);
		else
			snprintf(series, sizeof(series), "kvmm_%s_total", name);
		ck_assert_msg(fabs(value(text, series) - (double)v * scale) <
			      1e-6, "%s", series);
		nr += v != 0;
	}
	ck_assert_uint_gt(nr, 15);
	free(vmstat);
}
END_TEST

/* Sum of all series that begin with @begin. */
static double sum(const char *text, const char *begin)
{
	const char *p = text;
	double all = 0;

	while ((p = strstr(p, begin))) {
		if (p[-1] == '\n')
			all += strtod(strstr(p, "} ") + 2, NULL);
		p++;
	}
	return all;
}

START_TEST(test_parts_add_up)
{
	const char *text = metrics();

	ck_assert_double_gt(value(text, "kvmm_pool_bytes{pool=\"gpu0\",part=\"sealed\"}"), 0);
	ck_assert_double_gt(value(text, "kvmm_pool_bytes{pool=\"gpu0\",part=\"cached\"}"), 0);
	ck_assert_double_eq(sum(text, "kvmm_pool_bytes{"),
			    value(text, "kvmm_memory_gpu_total_bytes"));
	ck_assert_double_eq(sum(text, "kvmm_domain_seqs_running{"), 1);
}
END_TEST

/* A bucket of a lifetime histogram of domain `life`. */
static double life(const char *text, const char *name, const char *suffix,
		   const char *le)
{
	char series[160];

	snprintf(series, sizeof(series),
		 "kvmm_block_%s_seconds_%s{domain=\"life\",tenant=\"500\"%s}",
		 name, suffix, le);
	return value(text, series);
}

/*
 * Two whole blocks are taken at 0 s, cached at 1 s, found and cached again at 4
 * s, evicted at 24 s; the tails are freed with their sequences, after 1 s and
 * at once.
 */
START_TEST(test_lives)
{
	u32 us = fx_attach(&fx, US, "life");
	const char *text;
	u64 seq = fx_prefill(&fx, us, 40, 90000);

	ck_assert_double_eq(value(metrics(), "kvmm_domain_tail_bytes{domain=\"life\",tenant=\"500\",pool=\"gpu0\"}"),
			    8 * 4608 / 16);
	fx.now += 1000000000ull;
	fx_close(&fx, us, seq);
	fx.now += 3000000000ull;
	fx_close(&fx, us, fx_prefill(&fx, us, 40, 90000));
	text = metrics();
	ck_assert_double_eq(life(text, "reuse_gap", "sum", ""), 2 * 3);
	ck_assert_double_eq(life(text, "reuse_gap", "bucket", ",le=\"2\""), 0);
	ck_assert_double_eq(life(text, "reuse_gap", "bucket", ",le=\"10\""), 2);
	ck_assert_double_eq(life(text, "idle", "count", ""), 0);
	fx.now += 20000000000ull;
	ck_assert_int_ge(core_drop_caches(fx.core, fx.now, 3, ~0u), 0);
	text = metrics();
	ck_assert_double_eq(life(text, "idle", "sum", ""), 2 * 20);
	ck_assert_double_eq(life(text, "idle", "count", ""), 2);
	ck_assert_double_eq(life(text, "lifetime", "sum", ""), 2 * 24 + 1);
	ck_assert_double_eq(life(text, "lifetime", "count", ""), 4);
	ck_assert_double_eq(life(text, "lifetime", "bucket", ",le=\"0.001\""), 1);
	ck_assert_double_eq(life(text, "reuse_gap", "count", ""), 2);
	ck_assert_double_eq(value(text, "kvmm_block_sample_interval"), 1);
}
END_TEST

/* Tails of 12 tokens of 288 bytes, and of 28 tokens of 144; one more token fits both. */
START_TEST(test_tails_of_groups)
{
	static const char series[] =
		"kvmm_domain_tail_bytes{domain=\"gemma\",tenant=\"500\",pool=\"gpu0\"}";
	u32 us = fx_attach_groups(&fx, US, "gemma");
	u64 seq = fx_prefill(&fx, us, 100, 1);

	ck_assert_double_eq(value(metrics(), series), 12 * 288 + 28 * 144);
	fx_end(&fx, us, fx_begin(&fx, us, seq, 1), seq, 1, 1);
	ck_assert_double_eq(value(metrics(), series), 11 * 288 + 27 * 144);
}
END_TEST

/* Value of a family of layer groups. */
static double group(const char *text, const char *name, u32 nr)
{
	char series[160];

	snprintf(series, sizeof(series),
		 "kvmm_domain_group_%s{domain=\"gemma\",tenant=\"500\",pool=\"gpu0\",group=\"%u\"}",
		 name, nr);
	return value(text, series);
}

/* A domain of one group has no samples in these families. */
START_TEST(test_groups)
{
	const char *text = metrics();

	ck_assert_ptr_nonnull(strstr(text, "# TYPE kvmm_domain_group_blocks gauge\n"));
	ck_assert_ptr_null(strstr(text, "group=\""));
	fx_prefill(&fx, fx_attach_groups(&fx, US, "gemma"), 100, 1);
	text = metrics();
	ck_assert_double_eq(group(text, "blocks", 0), 7);
	ck_assert_double_eq(group(text, "blocks", 1), 2);
	ck_assert_double_eq(group(text, "block_size_tokens", 0), 16);
	ck_assert_double_eq(group(text, "block_size_tokens", 1), 32);
	ck_assert_double_eq(group(text, "window_tokens", 0), 0);
	ck_assert_double_eq(group(text, "window_tokens", 1), 32);
	ck_assert_double_eq(group(text, "padding_bytes", 0), 0);
	ck_assert_double_eq(group(text, "padding_bytes", 1), 2304);
	ck_assert_double_eq(group(text, "record_blocks", 1), 1);
}
END_TEST

/* In a large pool one block in 64 is sampled, wherever it lies in its extent. */
START_TEST(test_sample)
{
	u32 us = fx_attach(&fx, US, "life"), i;
	const char *text;
	u64 seq[200];
	double nr;

	for (i = 0; i < ARRAY_SIZE(seq); i++)
		seq[i] = fx_prefill(&fx, us, 150, 1000 * i);
	for (i = 0; i < ARRAY_SIZE(seq); i++)
		fx_close(&fx, us, seq[i]);
	ck_assert_int_ge(core_drop_caches(fx.core, fx.now, 0, ~0u), 0);
	text = metrics();
	ck_assert_double_eq(value(text, "kvmm_block_sample_interval"), 64);
	nr = life(text, "lifetime", "count", "");
	ck_assert_double_ge(nr, 2000. / 64 / 3);
	ck_assert_double_le(nr, 2000. / 64 * 3);
}
END_TEST

/* Append one token, if the sequence may run and finds room. */
static void grow(u32 client, u64 seq)
{
	struct kvmm_seq_status *st =
		&fx.client[client].seqs[KVMM_SEQ_INDEX(seq)];
	struct kvmm_begin_arg arg = {
		.seq = seq, .seq_epoch = st->seq_epoch,
		.start = st->valid_len, .max_tokens = 1,
	};
	u64 step = ++fx.client[client].step;
	struct kvmm_begin_res res;

	if (st->state != KVMM_SEQ_READY)
		return;
	ck_assert_int_eq(fx_request(&fx, client, KVMM_OP_STEP_BEGIN, step, &arg,
				    sizeof(arg), &res), 0);
	if (!res.status)
		fx_end(&fx, client, step, seq, 1, 20000);
}

/* Sequences that found room grow until the pool is full: younger ones are preempted. */
START_TEST(test_preemptions)
{
	u32 us = fx_attach(&fx, US, "crowd"), i, k;
	u64 seq[64];
	double lost;
	const char *text;

	for (i = 0; i < ARRAY_SIZE(seq); i++) {
		seq[i] = fx_open(&fx, us, 120, 64);
		fx_match(&fx, us, seq[i], 120, 20000 + 1000 * i);
		if (fx.client[us].seqs[KVMM_SEQ_INDEX(seq[i])].state !=
		    KVMM_SEQ_READY)
			break;
		fx_end(&fx, us, fx_begin(&fx, us, seq[i], 120), seq[i], 120,
		       20000 + 1000 * i);
	}
	ck_assert_uint_lt(i, ARRAY_SIZE(seq));
	ck_assert_uint_gt(i, 2);
	ck_assert_double_eq(sum(metrics(), "kvmm_domain_preemptions_total{"), 0);
	for (k = 0; k < 60 * i; k++)
		grow(us, seq[k % i]);
	text = metrics();
	ck_assert_double_ge(value(text, "kvmm_domain_preemptions_total{domain=\"crowd\",tenant=\"500\",cause=\"grow\",how=\"recompute\"}"), 1);
	ck_assert_double_eq(sum(text, "kvmm_domain_preemptions_total{"),
			    sum(text, "kvmm_domain_preempted_total{"));
	lost = sum(text, "kvmm_domain_preempted_tokens_total{");
	ck_assert_double_ge(lost, 120);
	ck_assert_double_eq(lost, value(text, "kvmm_recompute_tokens_total"));
}
END_TEST

/* ---- Documentation/metrics.md ---- */

static void row_of(const struct prom_family *f, char *row, size_t len)
{
	snprintf(row, len, "| `%s` | %s | %s | %s |\n", f->name, f->type,
		 f->labels, f->help);
}

START_TEST(test_documented)
{
	char *page = page_read("metrics.md"), row[640];
	const char *p;
	u32 i, missing = 0, nr = 0;

	fx_attach_groups(&fx, US, "gemma");
	metrics();
	for (i = 0; i < prom.nr; i++) {
		row_of(&prom.family[i], row, sizeof(row));
		missing += !strstr(page, row);
	}
	for (p = page; (p = strstr(p, "\n| `kvmm_")); p++)
		nr++;
#define x(name, text) ck_assert_row(page, "metrics.md", "| `" #name "` | " text " |\n");
	CORE_CAUSES(x)
#undef x
	for (i = 0; i < prom.nr && (missing || nr != prom.nr); i++) {
		row_of(&prom.family[i], row, sizeof(row));
		printf("%s%s", strstr(page, row) ? "  " : "+ ", row);
	}
	fflush(stdout);		/* the assertion may end the process */
	ck_assert_msg(!missing, "%u rows (+) are not in metrics.md", missing);
	ck_assert_msg(nr == prom.nr, "metrics.md has %u rows, there are %u", nr,
		      prom.nr);
	free(page);
}
END_TEST

/* ---- alerts and dashboard ---- */

/* Is @name, of @len bytes, a metric, or a series of a histogram? */
static bool is_metric(const char *pages, const char *name, size_t len)
{
	static const char * const suffix[] = { "", "_bucket", "_sum", "_count" };
	char row[160];
	size_t n;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(suffix); i++) {
		n = strlen(suffix[i]);
		if (len <= n || strncmp(name + len - n, suffix[i], n))
			continue;
		snprintf(row, sizeof(row), "\n| `%.*s` | %s", (int)(len - n),
			 name, n ? "histogram |" : "");
		if (strstr(pages, row))
			return true;
	}
	return false;
}

/* Check the metrics that @text names.  Return: their number. */
static u32 names_known(const char *pages, const char *text)
{
	const char *p = text;
	u32 nr = 0;

	for (; *p; p++) {
		size_t len = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789_");

		if (!len)
			continue;
		if (!strncmp(p, "kvmm_", 5) || !strncmp(p, "kvrt_", 5)) {
			ck_assert_msg(is_metric(pages, p, len),
				      "%.*s is no metric", (int)len, p);
			nr++;
		}
		p += len - 1;
	}
	return nr;
}

START_TEST(test_dist)
{
	static const char * const files[] = {
		"../kvmm/dist/prometheus/kvmm.rules.yml",
		"../kvmm/dist/grafana/kvmm.json",
	};
	char *ours = page_read("metrics.md"), *theirs = page_read("server.md");
	char *pages = malloc(2 * PAGE_MAX), *text;
	u32 i;

	snprintf(pages, 2 * PAGE_MAX, "%s%s", ours, theirs);
	for (i = 0; i < ARRAY_SIZE(files); i++) {
		text = page_read(files[i]);
		ck_assert_uint_gt(names_known(pages, text), 30);
		free(text);
	}
	free(pages);
	free(ours);
	free(theirs);
}
END_TEST

/* Every alert says its meaning and a remedy, and the page lists it. */
START_TEST(test_alerts)
{
	static const char * const parts[] = {
		"\n        expr: '", "\n        for: ", "\n          severity: ",
		"\n          summary: '", "\n          description: '",
		"\n          action: '",
	};
	char *rules = page_read("../kvmm/dist/prometheus/kvmm.rules.yml");
	char *page = page_read("metrics.md"), row[128];
	const char *p, *q;
	u32 i, nr = 0;

	for (p = rules; (p = strstr(p, "- alert: ")); nr++) {
		p += strlen("- alert: ");
		snprintf(row, sizeof(row), "\n| `%.*s` | ",
			 (int)strcspn(p, "\n"), p);
		ck_assert_msg(strstr(page, row), "metrics.md lacks %s", row);
		for (i = 0; i < ARRAY_SIZE(parts); i++) {
			q = strstr(p, parts[i]);
			ck_assert_msg(q && (!strstr(p, "- alert: ") ||
					    q < strstr(p, "- alert: ")),
				      "%s without%s", row, parts[i]);
		}
	}
	ck_assert_uint_gt(nr, 10);
	for (i = 0, p = page; (p = strstr(p, "\n| `Kv")); p++)
		i++;
	ck_assert_uint_eq(i, nr);
	free(rules);
	free(page);
}
END_TEST

/* ---- a tenant ---- */

START_TEST(test_tenant)
{
	static const char * const not_theirs[] = {
		"tenant=\"500\"", "134n", "kvmm_pgalloc", "kvmm_pool", "kvmm_memory",
		"kvmm_swap", "kvmm_pressure", "kvmm_uptime", "kvmm_mm_",
		"kvmm_clients", "kvmm_seqs", "/a",
	};
	const char *text;
	u32 i;

	ck_assert_int_eq(proc_request_as(fx.proc, THEM, "cat metrics", 11,
					 &fx.out), 0);
	text = seq_text(&fx.out);
	ck_assert_msg(prom_read(&prom, text), "%s", prom.why);
	value(text, "kvmm_domain_clients{domain=\"chat\",tenant=\"501\",pool=\"gpu0\"}");
	value(text, "kvmm_tenant_domains{tenant=\"501\"}");
	for (i = 0; i < ARRAY_SIZE(not_theirs); i++)
		ck_assert_msg(!strstr(text, not_theirs[i]), "%s",
			      not_theirs[i]);
}
END_TEST

/* ---- the reader itself ---- */

#define HEAD(name, type) "# HELP " name " text\n# TYPE " name " " type "\n"

static const struct {
	const char *text;
	const char *why;	/* NULL: the page is valid */
} pages[] = {
	{ HEAD("a_total", "counter") "a_total 1\n", NULL },
	{ HEAD("a", "gauge") "a{b=\"\\\\\\\"\\n\",c=\"{,}\"} -1.5e3\n", NULL },
	{ HEAD("a", "gauge") HEAD("b", "gauge"), NULL },
	{ HEAD("a", "gauge") "a +Inf\n", NULL },
	{ HEAD("h", "histogram") "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n", NULL },
	{ HEAD("h", "histogram") "h_bucket{a=\"1\",le=\"+Inf\"} 2\nh_sum{a=\"1\"} 3\nh_count{a=\"1\"} 2\nh_bucket{a=\"2\",le=\"+Inf\"} 1\nh_sum{a=\"2\"} 3\nh_count{a=\"2\"} 1\n", NULL },
	{ "", "no family" },
	{ "a 1\n", "of no family" },
	{ HEAD("a", "gauge") "a 1", "no newline" },
	{ HEAD("a", "gauge") "a 1\n" HEAD("a", "gauge"), "twice" },
	{ HEAD("a", "gauge") "a 1\na 2\n", "twice" },
	{ HEAD("a", "gauge") "a{b=\"1\"} 1\na{b=\"2\"} 1\na{b=\"1\"} 1\n", "twice" },
	{ HEAD("a", "gauge") "b 1\n", "of no family" },
	{ HEAD("a", "gauge") "a_sum 1\n", "of no family" },
	{ HEAD("a", "gauge") "a{b=\"\\t\"} 1\n", "labels" },
	{ HEAD("a", "gauge") "a{b=\"1} 1\n", "labels" },
	{ HEAD("a", "gauge") "a{b=1} 1\n", "labels" },
	{ HEAD("a", "gauge") "a{b=\"1\" 1\n", "labels" },
	{ HEAD("a", "gauge") "a  1\n", "value" },
	{ HEAD("a", "gauge") "a 1 \n", "value" },
	{ HEAD("a", "gauge") "a 1x\n", "value" },
	{ HEAD("a", "counter") "a 1\n", "_total" },
	{ HEAD("a_total", "gauge") "a_total 1\n", "_total" },
	{ HEAD("a_total", "counter") "a_total -1\n", "counter of that" },
	{ HEAD("a_total", "counter") "a_total +Inf\n", "counter of that" },
	{ HEAD("aB", "gauge") "aB 1\n", "snake" },
	{ HEAD("a_ms", "gauge") "a_ms 1\n", "base unit" },
	{ HEAD("a_ns_total", "counter") "a_ns_total 1\n", "base unit" },
	{ HEAD("a_count", "gauge") "a_count 1\n", "suffix" },
	{ HEAD("a", "summary") "a 1\n", "type" },
	{ "# HELP a text\na 1\n", "HELP, then TYPE" },
	{ "# TYPE a gauge\n# HELP a text\na 1\n", "of no family" },
	{ HEAD("h", "histogram") "h_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n", "fall" },
	{ HEAD("h", "histogram") "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 2\n", "fall" },
	{ HEAD("h", "histogram") "h_bucket{le=\"1\"} 1\nh_sum 3\nh_count 1\n", "sum" },
	{ HEAD("h", "histogram") "h_bucket{le=\"+Inf\"} 1\nh_sum 3\nh_count 2\n", "+Inf is not" },
};

START_TEST(test_reader)
{
	bool good = prom_read(&prom, pages[_i].text);

	ck_assert_msg(good == !pages[_i].why, "%s'%s'", pages[_i].text,
		      prom.why);
	if (!good)
		ck_assert_msg(strstr(prom.why, pages[_i].why), "'%s' is not '%s'",
			      prom.why, pages[_i].why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics");
	TCase *page = tcase_create("page"), *reader = tcase_create("reader");
	TCase *bare = tcase_create("bare"), *large = tcase_create("large");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(page, setup, teardown);
	tcase_add_test(page, test_page);
	tcase_add_test(page, test_as_vmstat);
	tcase_add_test(page, test_parts_add_up);
	tcase_add_test(page, test_lives);
	tcase_add_test(page, test_tails_of_groups);
	tcase_add_test(page, test_groups);
	tcase_add_test(page, test_documented);
	tcase_add_test(page, test_tenant);
	tcase_add_test(page, test_dist);
	tcase_add_test(page, test_alerts);
	tcase_add_checked_fixture(bare, setup_bare, teardown);
	tcase_add_test(bare, test_preemptions);
	tcase_add_checked_fixture(large, setup_large, teardown);
	tcase_add_test(large, test_sample);
	tcase_add_loop_test(reader, test_reader, 0, ARRAY_SIZE(pages));
	suite_add_tcase(s, page);
	suite_add_tcase(s, bare);
	suite_add_tcase(s, large);
	suite_add_tcase(s, reader);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
