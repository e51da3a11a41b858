// SPDX-License-Identifier: Apache-2.0
/*
 * fio.c - running fio and reading its results
 *
 * fio prints JSON; a run that fails, or that lacks a figure, ends the benchmark.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/fio.h"
#include "tests/bench/huge.h"

#define JOBS_MAX	4u
#define TRIES		5

bool fio_is_there(void)
{
	if (!system("fio --version >/dev/null 2>&1"))
		return true;
	fprintf(stderr, "note: fio is not installed (apt-get install fio): no peer\n");
	return false;
}

void fio_fill(const char *path, u64 bytes)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd),
		 "fio --name=fill --filename='%s' --rw=write --bs=1m --size=%llu --direct=1 --ioengine=io_uring --iodepth=8 >/dev/null 2>&1",
		 path, (unsigned long long)bytes);
	if (system(cmd))
		bench_die("fio cannot write %s: room there?", path);
}

static double percentile(const json_t *io, const char *which)
{
	const json_t *lat = json_object_get(io, "lat_ns");

	return json_number_value(json_object_get(
			json_object_get(lat, "percentile"), which)) / 1000;
}

static void read_job(const json_t *root, u32 i, bool write,
		     struct fio_result *r)
{
	const json_t *job = json_array_get(json_object_get(root, "jobs"), i);
	const json_t *io = json_object_get(job, write ? "write" : "read");
	double bytes = json_number_value(json_object_get(io, "io_bytes"));
	double ms = json_number_value(json_object_get(io, "runtime"));
	double cpu = json_number_value(json_object_get(job, "usr_cpu")) +
		     json_number_value(json_object_get(job, "sys_cpu"));

	if (bytes <= 0 || ms <= 0)
		bench_die("what fio printed has no figures of job %u", i);
	r->us_mib = ms * 1000 / (bytes / (1 << 20));
	r->cpu_us_mib = r->us_mib * cpu / 100;
	r->p50 = percentile(io, "50.000000");
	r->p99 = percentile(io, "99.000000");
	if (r->p50 <= 0 || r->p99 <= 0)
		bench_die("what fio printed has no percentiles");
}

/* Huge pages of all jobs, and a few more for each. */
static u64 pages_wanted(const struct fio_job *job, u32 nr)
{
	u64 pages = 0;
	u32 i;

	for (i = 0; i < nr; i++)
		pages += (u64)job[i].bs * job[i].depth / (2 << 20) + 2;
	return pages;
}

/*
 * Repeat a command that fails: the kernel frees the memory of the last run some
 * time after its end, and other programs may change the number of huge pages.
 */
static void run_command(const char *cmd, const char *log, u64 pages)
{
	char line[512];
	FILE *f;
	int i;

	for (i = 0; i < TRIES; i++) {
		if (pages)
			huge_pages_again(pages);
		if (!system(cmd))
			return;
		sleep(1);
	}
	fprintf(stderr, "%s\n", cmd);
	f = fopen(log, "re");
	while (f && fgets(line, sizeof(line), f))
		fputs(line, stderr);
	bench_die("fio failed %u times: what it said is above", TRIES);
}

void fio_run(const struct fio_run *run, const struct fio_job *job, u32 nr,
	     struct fio_result *res)
{
	char cmd[4096], out[300], log[300];
	json_error_t err;
	json_t *root;
	size_t n;
	u32 i;

	snprintf(out, sizeof(out), "%s/fio.json", run->dir);
	snprintf(log, sizeof(log), "%s/fio.log", run->dir);
	n = (size_t)snprintf(cmd, sizeof(cmd),
		"fio --ioengine=io_uring --direct=1 --fixedbufs --registerfiles --iomem=%s --norandommap --randrepeat=0 --time_based --lat_percentiles=1 --ramp_time=%llums --runtime=%llums --size=%llu --output-format=json --output='%s'",
		run->huge ? "shmhuge" : "shm",
		(unsigned long long)run->ramp_ms,
		(unsigned long long)run->ms, (unsigned long long)run->size,
		out);
	for (i = 0; i < nr && i < JOBS_MAX; i++)
		n += (size_t)snprintf(cmd + n, sizeof(cmd) - n,
			" --name=job%u --filename='%s' --rw=%s --bs=%u --iodepth=%u",
			i, job[i].file, job[i].write ? "randwrite" :
			"randread", job[i].bs, job[i].depth);
	snprintf(cmd + n, sizeof(cmd) - n, " >'%s' 2>&1", log);
	run_command(cmd, log, run->huge ? pages_wanted(job, nr) : 0);
	root = json_load_file(out, 0, &err);
	if (!root)
		bench_die("what fio printed cannot be read: %s", err.text);
	for (i = 0; i < nr; i++)
		read_job(root, i, job[i].write, &res[i]);
	json_decref(root);
}
