// SPDX-License-Identifier: Apache-2.0
/*
 * unrest.c - all other activities of a node beside working runtimes
 *
 * Clients are separate processes that speak the ABI by hand; if the daemon dies
 * they just end.  A failed command of an operator is not repeated; a later one
 * works on the node's current state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/adopt_scene.h"
#include "tests/integration/unrest.h"
#include "tests/integration/wire.h"

#define VISITOR_MS	3000u
#define VISITOR_NAMES	5u	/* domains, more than the node allows */
#define VISITOR_TOKENS	40u

/* ---- clients ---- */

/* The end of a client. */
enum visit {
	VISIT_DETACHES,
	VISIT_KILLED,
};

static void __noreturn visitor_main(const char *sock, const char *domain,
				    u64 min_bytes, enum visit how)
{
	struct kvmm_attach_req req;
	struct wire w;
	u64 seq;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	wire_request(&req, domain);
	req.limits[0].min = min_bytes;
	if (wire_attach(&w, sock, &req))
		_exit(1);
	seq = wire_seq(&w, VISITOR_TOKENS, 1);
	if (how == VISIT_DETACHES) {
		(void)wire_call(&w, KVMM_OP_DETACH, 0, NULL, 0, NULL, 0);
		_exit(0);
	}
	if (seq)
		(void)wire_step(&w, seq);
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static void visit(struct rig *r, const char *tenant, const char *domain,
		  u64 min_bytes, enum visit how)
{
	const u64 end = now_ms() + VISITOR_MS * time_scale();
	char sock[RIG_PATH + 64];
	pid_t pid;

	snprintf(sock, sizeof(sock), "%s%s/attach.sock", r->dir, tenant);
	fflush(stdout);
	pid = fork();
	if (!pid)
		visitor_main(sock, domain, min_bytes, how);
	while (pid > 0 && !waitpid(pid, NULL, WNOHANG)) {
		if (now_ms() > end)
			kill(pid, SIGKILL);
		nap_ms(1);
	}
}

static void visitor(struct rig *r, enum visit how)
{
	static u32 nr;
	char domain[32];

	snprintf(domain, sizeof(domain), "visitor-%u", nr++ % VISITOR_NAMES);
	visit(r, "", domain, 0, how);
}

static void visitor_detaches(struct rig *r)
{
	visitor(r, VISIT_DETACHES);
}

static void visitor_dies(struct rig *r)
{
	visitor(r, VISIT_KILLED);
}

static void neighbour_dies(struct rig *r)
{
	visit(r, "/" UNREST_TENANT, "neighbour", 256 << 10, VISIT_KILLED);
}

/* ---- operators ---- */

static void kvctl(struct rig *r, const char *a, const char *b, const char *c,
		  const char *d)
{
	struct job j = job_start(r, "kvctl", a, b, c, d, NULL);

	(void)!job_wait(&j, 60);
	unlink(j.out);
	unlink(j.err);
}

static void pool_shrinks(struct rig *r)
{
	kvctl(r, "set", "pool/gpu0/size", adopt_pool_size(true), NULL);
}

static void pool_grows(struct rig *r)
{
	kvctl(r, "set", "pool/gpu0/size", adopt_pool_size(false), NULL);
}

static void area_goes(struct rig *r)
{
	char area[RIG_PATH + 16];

	snprintf(area, sizeof(area), "%s/area", r->dir);
	kvctl(r, "swapoff", area, NULL, NULL);
}

static void area_comes(struct rig *r)
{
	char area[RIG_PATH + 16];

	snprintf(area, sizeof(area), "%s/area", r->dir);
	kvctl(r, "swapon", area, "--size", "32M");
}

void unrest_caches_go(struct rig *r)
{
	kvctl(r, "drop_caches", NULL, NULL, NULL);
}

/* ---- all activities ---- */

static void (*const unrests[])(struct rig *r) = {
	visitor_detaches, visitor_dies, neighbour_dies, pool_shrinks,
	visitor_detaches, pool_grows, area_goes, visitor_dies,
	unrest_caches_go, area_comes,
};

const u32 nr_unrests = ARRAY_SIZE(unrests);

void unrest(struct rig *r, u32 n)
{
	unrests[n % nr_unrests](r);
}
