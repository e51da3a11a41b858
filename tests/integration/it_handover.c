// SPDX-License-Identifier: Apache-2.0
/*
 * it_handover.c - memory changes its tenant and carries no content along
 *
 * The programs of two users fill all memory with marked words, and take it from
 * each other in turn: from a tenant that closes, from one that lives and is
 * asked to unmap, from one that dies in a step, detaches or returns as another
 * model; while the pool shrinks and grows and the swap area goes and comes.  A
 * player that gets memory searches all of it before it writes, see
 * handover_player.c.  The test searches the tiers that no client maps as root:
 * no page of host pool or area may have bytes of both tenants, no slot a byte
 * of the wrong one.
 *
 * A hand-over is one extent, slot or segment that changed from one tenant to
 * the other.  Without root there is only one user, and no test.
 * budget: 60 s
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/handover.h"

#define HALF		(HO_SEQS / 2)	/* sequences that fill half of the pool */
#define ALL		(HO_SEQS * 7 / 8)	/* a few sequences less, for steps */
#define OUT		24u	/* sequences; the host pool has no room for as many */
#define AREA_BYTES	(5u << 20)
#define SLOT_PAGES	5u	/* pages of content, for either tenant */
#define OBEY_MS		60000u
#define REVOKE_MS	6000u	/* a player, or the machine, may be busy */
#define SAY_MS		60000u
#define MOST_TURNS	400u	/* for each kind to be handed over */

static const char * const kind_text[HO_NR_KINDS] = {
#define x(name, text) [HO_##name] = text,
	HO_KINDS(x)
#undef x
};

static struct rig rig;
static struct ho_shared *sh;
static u64 began;
static struct ho_player players[HO_TENANTS];
static pid_t pids[HO_TENANTS];
static struct ho_pages host, area;
static char area_path[RIG_PATH + 16];

/* ---- players ---- */

static void must_live(u32 t)
{
	int status;

	if (!pids[t] || !waitpid(pids[t], &status, WNOHANG))
		return;
	pids[t] = 0;
	ck_abort_msg("tenant %u ended: %s %d", t,
		     WIFSIGNALED(status) ? "signal" : "exit code",
		     WIFSIGNALED(status) ? WTERMSIG(status) :
					   WEXITSTATUS(status));
}

static void await(u32 t)
{
	u64 end = now_ms() + OBEY_MS * time_scale();
	struct timespec ts = { .tv_nsec = 50000 };

	/* Pairs with the release in the player. */
	while (load_acquire(&sh->slot[t].cmd) != HO_NONE) {
		must_live(0);
		must_live(1);
		ck_assert_msg(now_ms() < end, "tenant %u does not answer", t);
		nanosleep(&ts, NULL);
	}
}

static void tell(u32 t, enum ho_cmd cmd, u32 arg)
{
	sh->slot[t].arg = arg;
	store_release(&sh->slot[t].cmd, (u32)cmd);
	await(t);
}

static void player_start(u32 t)
{
	struct ho_player *p = &players[t];

	p->rig = &rig;
	p->sh = sh;
	p->tenant = t;
	p->uid = 10001 + t;
	/* The player answers once it is attached. */
	sh->slot[t].cmd = HO_LOOK;
	fflush(stdout);
	pids[t] = fork();
	ck_assert_int_ge(pids[t], 0);
	if (!pids[t])
		ho_play(p);
	await(t);
}

static void player_kill(u32 t)
{
	int status;

	kill(pids[t], SIGKILL);
	ck_assert_int_eq(waitpid(pids[t], &status, 0), pids[t]);
	pids[t] = 0;
}

static void player_quit(u32 t)
{
	int status;

	sh->slot[t].cmd = HO_QUIT;
	ck_assert_int_eq(waitpid(pids[t], &status, 0), pids[t]);
	ck_assert_int_eq(status, 0);
	pids[t] = 0;
}

/* ---- the operator ---- */

static void kvctl(const char *verb, const char *a, const char *b, const char *c)
{
	struct job j = job_start(&rig, "kvctl", verb, a, b, c, NULL);

	if (job_wait(&j, 60))
		ck_abort_msg("kvctl %s: %s", verb, slurp(j.err));
	unlink(j.out);
	unlink(j.err);
}

static void pages_open(struct ho_pages *pg, const char *what, enum ho_kind kind,
		       int fd, size_t bytes)
{
	ho_pages_open(pg, what, kind, fd, bytes);
	pg->before = sh->count[kind];
}

static void area_open(void)
{
	int fd;

	kvctl("swapon", area_path, "--size", "5M");
	fd = open(area_path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	if (area.buf)
		area.fd = fd;
	else
		pages_open(&area, "area", HO_area_slot, fd, AREA_BYTES);
}

/* Its bytes stay on the disk, and area.owner keeps their tenants. */
static void area_close(void)
{
	kvctl("swapoff", area_path, NULL, NULL);
	close(area.fd);
	area.fd = -1;
}

static void pages_look(struct ho_pages *pg)
{
	const char *wrong = pg->fd >= 0 ? ho_pages_look(pg) : NULL;

	ck_assert_msg(!wrong, "%s", wrong);
	sh->count[pg->kind] = pg->before + pg->changed / SLOT_PAGES;
}

static void tiers_look(void)
{
	pages_look(&host);
	pages_look(&area);
}

/* ---- ways for @t to give up its memory; it returns afterwards ---- */

static void way_death(u32 t)
{
	tell(t, HO_CLOSE, 0);
	tell(t, HO_OPEN_STEP, ALL);
	player_kill(t);
	player_start(t);
}

static void way_detach(u32 t)
{
	player_quit(t);
	player_start(t);
}

/* The player lives on and may have mapped its memory: the other one waits for that. */
static void way_renew(u32 t)
{
	tell(t, HO_RENEW, ++players[t].model);
}

static void way_model(u32 t)
{
	player_quit(t);
	players[t].model++;
	player_start(t);
}

static void way_swapoff(u32 t)
{
	area_close();
	area_open();
}

static void way_resize(u32 t)
{
	char size[32];

	kvctl("set", "pool/gpu0/size", "2M", NULL);
	tell(t, HO_CLOSE, 0);
	snprintf(size, sizeof(size), "%u", HO_EXTENTS * HO_EXTENT);
	kvctl("set", "pool/gpu0/size", size, NULL);
}

static void way_drop(u32 t)
{
	tell(t, HO_CLOSE, 0);
	kvctl("drop_caches", NULL, NULL, NULL);
}

/*
 * Both leave and return in the other order, so that the ids of clients change
 * over.  Try again if the daemon still had an id in use, since its process had
 * not ended yet.
 */
static void way_order(u32 t)
{
	const u64 had = sh->count[HO_segment];
	u32 first, tries;

	for (tries = 0; tries < 5 && sh->count[HO_segment] == had; tries++) {
		first = sh->client[0] == 1;
		player_quit(0);
		player_quit(1);
		nap_ms(20);
		player_start(first);
		player_start(!first);
	}
}

static void (* const ways[])(u32 t) = {
	way_death, way_order, way_detach, way_swapoff, way_model, way_drop,
	way_renew, way_resize,
};

/* ---- the loop ---- */

/* Page out to the host pool and the area, and in again, unchanged. */
static void down_and_up(u32 t)
{
	tell(t, HO_OUT, OUT);
	nap_ms(5);
	tiers_look();
	tell(t, HO_BACK, 0);
	tell(t, HO_VERIFY, 0);
}

/* @x has all memory; @y takes half of it, and @x goes on. */
static void take_half(u32 x, u32 y)
{
	tell(y, HO_FILL, HALF);
	/* Blocks that left the device for it are in a lower tier now, or dropped. */
	tiers_look();
	tell(x, HO_VERIFY, 0);
	down_and_up(y);
}

/* @y closes: the blocks of @x come back from below, unchanged. */
static void give_back(u32 x, u32 y)
{
	u64 end = now_ms() + 50;

	tell(y, HO_CLOSE, 0);
	while (READ_ONCE(sh->slot[x].nr_out) && now_ms() < end)
		nap_ms(1);
	tell(x, HO_VERIFY, 0);
	tell(y, HO_FILL, HALF);
	tiers_look();
}

/* @x closes, or ends in another way; @y takes the memory that it lacks. */
static void take_rest(u32 x, u32 y, void (*way)(u32 t), u32 nr)
{
	if (way)
		way(x);
	tell(x, HO_CLOSE, 0);
	tell(y, HO_FILL, nr);
}

static u64 total(void)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < HO_NR_KINDS; i++)
		sum += sh->count[i];
	return sum;
}

/* Go on until all hand-overs were made, with each way and each kind among them. */
static bool goes_on(u64 want, u32 turn, u32 way)
{
	u32 i;

	for (i = 0; i < HO_NR_KINDS && turn < MOST_TURNS; i++)
		if (!sh->count[i])
			return true;
	return total() < want || way < ARRAY_SIZE(ways);
}

static u32 nr_parts(void)
{
	return by_level(1, 1, 10);
}

static void totals_print(const char *what)
{
	const u64 ms = now_ms() - began;
	u32 i;

	printf("%s: %llu hand-overs in %llu.%llu s:", what,
	       (unsigned long long)total(), (unsigned long long)ms / 1000,
	       (unsigned long long)ms / 100 % 10);
	for (i = 0; i < HO_NR_KINDS; i++)
		printf("%s %llu %s", i ? "," : "",
		       (unsigned long long)sh->count[i], kind_text[i]);
	printf("; %llu MiB searched, %llu MiB came back right\n",
	       (unsigned long long)sh->looked >> 20,
	       (unsigned long long)(sh->verified[0] +
				    sh->verified[1]) >> 20);
	fflush(stdout);
}

/* All memory goes from @x to @y: half of it under pressure first, or all by closing. */
static void round_of(u32 x, u32 y, u32 turn, void (*way)(u32 t))
{
	const bool press = turn % by_level(2, 4, 8) == 0;

	if (press) {
		take_half(x, y);
		if (turn % 3 == 2)
			give_back(x, y);
	}
	take_rest(x, y, way, press ? ALL - HALF : ALL);
	if (!press && turn % by_level(1, 2, 4) == 0)
		down_and_up(y);
}

static void rounds(u64 want)
{
	const u64 slow = by_level(1, 20, 50);
	u64 said = now_ms();
	u32 x = 0, turn = 0, way = 0;

	tell(x, HO_FILL, ALL);
	while (goes_on(want, turn, way)) {
		void (*how)(u32 t) = NULL;

		if (turn % slow == slow - 1)
			how = ways[way++ % ARRAY_SIZE(ways)];
		round_of(x, !x, turn++, how);
		x = !x;
		if (now_ms() > said + SAY_MS) {
			said = now_ms();
			totals_print("  so far");
		}
	}
}

static void setup(void)
{
	size_t bytes = 0;
	char size[32], deadline[32];
	int fd;

	memset(sh, 0, offsetof(struct ho_shared, count));
	snprintf(size, sizeof(size), "%u", HO_EXTENTS * HO_EXTENT);
	snprintf(deadline, sizeof(deadline), "%u", REVOKE_MS * time_scale());
	rig_start(&rig, "--pool-size", size, "--extent-size", "64K",
		  "--host-size", "4M", "--area-max", "8M", "--socket-mode",
		  "0666", "--starve-ms", "1", "--cache-floor", "0",
		  "--swappiness", "200", "--watermark-scale-factor", "0",
		  "--revoke-deadline-ms", deadline,
		  NULL);
	snprintf(area_path, sizeof(area_path), "%s/area", rig.dir);
	fd = ho_host_pool(rig_daemon(&rig), &bytes);
	ck_assert_msg(fd >= 0, "the host pool cannot be looked at");
	pages_open(&host, "host pool", HO_host_slot, fd, bytes);
	area_open();
	player_start(0);
	player_start(1);
}

/* In parts, each with a new daemon: a test may last half an hour. */
START_TEST(test_handover)
{
	const char *asked = getenv("KVMM_HANDOVERS");
	u64 want = asked ? strtoull(asked, NULL, 10) :
			   by_level(1000, 20000, 1000000);
	u32 i;

	if (geteuid()) {
		printf("note: not tested: it takes root to be two users\n");
		return;
	}
	setup();
	rounds(want / nr_parts() * (u32)(_i + 1));
	tiers_look();
	for (i = 0; i < HO_NR_KINDS; i++)
		ck_assert_msg(sh->count[i], "no hand-over of %s", kind_text[i]);
	ck_assert_uint_gt(sh->verified[0], 0);
	ck_assert_uint_gt(sh->verified[1], 0);
	player_quit(0);
	player_quit(1);
	rig_walk(&rig);
	ho_pages_close(&host);
	ho_pages_close(&area);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("handover");
	TCase *tc = tcase_create("handover");
	SRunner *sr;
	int failed;

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return EXIT_FAILURE;
	began = now_ms();
	tcase_set_timeout(tc, 1800);
	tcase_add_loop_test(tc, test_handover, 0, (int)nr_parts());
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	if (!failed && total())
		totals_print("total");
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
