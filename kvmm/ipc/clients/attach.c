// SPDX-License-Identifier: Apache-2.0
/*
 * attach.c - one request, one answer: a connection becomes a client
 *
 * The shell judges the ABI and the quota of the tenant, the core judges the
 * domain and its geometry.  Then the two segments are laid out and made
 * (rings.c), the core is told where to publish, and the answer goes out with
 * three descriptors.  A failure after the core knows the client is undone by
 * hanging up, as for a client that died at that moment.
 *
 * Every refusal is an errno and one line that names the reason and the remedy.
 *
 * A secret keys the hashes of a tenant's prefixes.  One is drawn with each
 * attach, and the core keeps the first that it is given for a tenant.  It lies
 * in the arena alone; here it is erased when the core has it.
 *
 * Context: control thread, but for the function handed to mm_call().
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

#define SQ_ENTRIES_DEFAULT	256u
#define POOLS_TEXT		32u	/* names of device pools */

struct attach_call {
	struct clients			*cs;
	struct client			*c;
	const struct kvmm_attach_req	*req;
	const u8			*secret;
	const struct domain_opt		*limits;	/* of the options, or NULL */
	u32				refused;	/* of these */
	bool				limited;
	struct core_quota		quota;
	struct kvmm_attach_rep		*rep;
	struct core_attach_info		info;
	int				err;
};

/* ---- refusing ---- */

/* attach_refuse() - put the reason into the answer.  Return: @err */
int attach_refuse(struct kvmm_attach_rep *rep, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(rep->text, sizeof(rep->text), fmt, ap);
	va_end(ap);
	rep->status = err;
	return err;
}

/* A token has fewer bytes than the records of blocks are made for. */
static int refuse_token(const struct clients *cs, struct kvmm_attach_rep *rep,
			int err, u32 bytes)
{
	u32 least = 1;

	while (least <= bytes / 2)
		least *= 2;
	return attach_refuse(rep, err,
			     "a token's KV has %u bytes, less than the daemon's --min-token-bytes %llu: start the daemon with --min-token-bytes %u or less",
			     bytes, (unsigned long long)cs->setup->opt.min_token_bytes,
			     least);
}

/* The names of the @nr device pools from @first on: gpu0, or gpu0 to gpu2. */
static const char *pools_text(u32 first, u32 nr, char *buf)
{
	if (nr == 1)
		snprintf(buf, POOLS_TEXT, "gpu%u", first);
	else
		snprintf(buf, POOLS_TEXT, "gpu%u %s gpu%u", first,
			 nr == 2 ? "and" : "to", first + nr - 1);
	return buf;
}

/* The device pools that the request names do not exist, or its domain is in another one. */
static int refuse_pool(const struct attach_call *a, const char *name)
{
	const struct kvmm_attach_req *req = a->req;
	const u32 nr = a->cs->setup->nr_pools;
	char have[POOLS_TEXT];

	if (a->err == -EEXIST)
		return attach_refuse(a->rep, a->err,
				     "domain %s is in use in the device pool gpu%u: ask for --pool gpu%u or auto, or use another --domain",
				     name, a->info.old_pool, a->info.old_pool);
	if (req->pool > nr)
		return attach_refuse(a->rep, a->err,
				     "kvmm has no device pool gpu%u, it has %s%s: ask for one of its pools, or auto",
				     req->pool - 1, pools_text(0, nr, have),
				     nr == 1 ? " alone" : "");
	return attach_refuse(a->rep, a->err,
			     "kvmm has %s, too few device pools for the %u shards of this domain from gpu%u on",
			     pools_text(0, nr, have), req->nr_shards,
			     max(req->pool, 1u) - 1);
}

/* Its tenant has as many of these as it may. */
static int refuse_quota(struct clients *cs, const struct client *c,
			struct kvmm_attach_rep *rep, u32 nr, const char *what,
			const char *how)
{
	char name[TENANT_TEXT];

	return attach_refuse(rep, -EUSERS, "tenant %s has %u %s, as many as it may (%s): end one",
			     tenant_name(cs->sockets, c->key, name), nr, what, how);
}

/* Its quota of clients and connections; this connection is one of them. */
static int attach_check_quota(struct clients *cs, const struct client *c,
			      struct kvmm_attach_rep *rep)
{
	const struct tenant_quota *q = tenant_quota(cs->sockets, c->key);
	const char *how = c->key & TENANT_NAMED ?
			  "its --tenant" : "--tenant-clients, --user-quota";

	if (tenant_clients(cs, c->key) >= q->clients)
		return refuse_quota(cs, c, rep, q->clients, "clients attached",
				    how);
	if (tenant_conns(cs, c->key) > q->conns)
		return refuse_quota(cs, c, rep, q->conns, "connections", how);
	if (ghost_count(cs, c->key) >= q->conns)
		return refuse_quota(cs, c, rep, q->conns,
				    "processes that detached and live on", how);
	return 0;
}

static bool reserved_clear(const struct kvmm_attach_req *req)
{
	u64 any = req->resv;
	u32 i;

	for (i = 0; i < KVMM_MAX_GROUPS; i++)
		any |= i < req->nr_groups ? req->group[i].kind > KVMM_GROUP_STATE :
					    req->group[i].kind;
	return !any;
}

/* attach_check_abi() - has the client the same ABI as this kvmm? */
int attach_check_abi(const struct kvmm_attach_req *req,
		     struct kvmm_attach_rep *rep)
{
	if (req->abi_version != KVMM_ABI_VERSION)
		return attach_refuse(rep, -EPROTONOSUPPORT,
				     "this kvmm speaks ABI version %u, the client %u: install both from one release",
				     KVMM_ABI_VERSION, req->abi_version);
	if (req->layout_hash != KVMM_LAYOUT_HASH)
		return attach_refuse(rep, -EPROTONOSUPPORT,
				     "the client was built with another uapi/kvmm.h: build both from one release");
	return 0;
}

static int attach_check(struct clients *cs, const struct client *c,
			struct kvmm_attach_req *req,
			struct kvmm_attach_rep *rep)
{
	int err = attach_check_abi(req, rep);

	if (err)
		return err;
	if (req->flags || !reserved_clear(req))
		return attach_refuse(rep, -EINVAL,
				     "a flag or a reserved field of the attach request is set: the client is newer than this kvmm");
	if (!memchr(req->domain, '\0', sizeof(req->domain)))
		return attach_refuse(rep, -EINVAL,
				     "the name of the domain does not end: at most %u bytes",
				     KVMM_NAME_LEN - 1);
	if (!req->sq_entries)
		req->sq_entries = SQ_ENTRIES_DEFAULT;
	if (!is_power_of_2(req->sq_entries))
		return attach_refuse(rep, -EINVAL,
				     "%u submission entries are no power of two",
				     req->sq_entries);
	return attach_check_quota(cs, c, rep);
}

/* ---- on the mm thread ---- */

static void call_attach(struct core *core, void *arg)
{
	struct attach_call *a = arg;
	const bool is_new = a->limits &&
			    domains_known(core, a->c->key, a->limits->name) == CORE_NONE;

	a->err = core_client_attach_within(core, kv_now_ns(), a->c->key,
					   a->secret, &a->quota, a->req,
					   &a->info);
	if (a->err)
		return;
	a->c->mm.id = a->info.client;
	a->c->tenant = a->info.tenant;
	a->limited = is_new;
	if (is_new)
		a->refused = domains_set(core, a->info.domain, a->limits, ~0u,
					 true);
	mm_introduce(a->cs->mm, &a->c->mm);
}

/* The name of a domain, as one printable word; its end was judged. */
static const char *domain_print(const char *domain, char *name)
{
	u32 i;

	for (i = 0; domain[i]; i++)
		name[i] = domain[i] > ' ' && domain[i] <= '~' ? domain[i] : '_';
	name[i] = '\0';
	return name;
}

/* ---- the whole ---- */

/* Have the core judge the request, with a secret in case the tenant is new. */
static int attach_core(struct attach_call *a)
{
	char name[KVMM_NAME_LEN];
	u8 secret[CORE_SECRET_LEN];
	int err;

	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
		return attach_refuse(a->rep, -EAGAIN,
				     "the system has no random numbers: try again");
	a->secret = secret;
	a->limits = domains_find(a->cs, a->c->key, a->req->domain);
	err = mm_call(a->cs->mm, call_attach, a);
	a->secret = NULL;
	explicit_bzero(secret, sizeof(secret));
	if (err)
		return attach_refuse(a->rep, err, "kvmm is shutting down");
	if (a->err == -ENXIO || (a->err == -EEXIST && a->info.elsewhere))
		return refuse_pool(a, domain_print(a->req->domain, name));
	if (a->err && a->info.small_token)
		return refuse_token(a->cs, a->rep, a->err, a->info.small_token);
	if (a->err)
		return attach_refuse(a->rep, a->err, "%s", a->info.text ?
				     a->info.text : strerror(-a->err));
	return 0;
}

/* Everything up to the answer.  Once c->mm.id is set the core knows the client. */
static int attach_build(struct attach_call *a, struct kvmm_attach_req *req)
{
	struct clients *cs = a->cs;
	struct client *c = a->c;
	int err = attach_check(cs, c, req, a->rep);

	if (err)
		return err;
	if (!tenant_get(cs, c->key))
		return attach_refuse(a->rep, -EUSERS,
				     "%u tenants are attached, as many as --max-tenants allows",
				     cs->setup->opt.max_tenants);
	err = client_tables(cs, c);
	if (err)
		return attach_refuse(a->rep, err, "kvmm has no memory for a client");
	tenant_core_quota(cs->sockets, c->key, &a->quota);
	client_make_room(cs);
	err = attach_core(a);
	if (err)
		return err;
	if (deposit_wanted(cs->deposit))
		a->rep->features = req->features & KVMM_FEAT_RESUME;
	err = rings_make(cs, c, req->sq_entries, 0, &a->info, a->rep);
	if (err)
		return attach_refuse(a->rep, err,
				     "kvmm cannot make the shared memory of a client (%s): ask for fewer sequences, or free memory",
				     strerror(-err));
	return rings_start(cs, c, a->rep);
}

/* The idle domain is now in other device pools, without its cache. */
static void attach_log_moved(const struct attach_call *a)
{
	char name[KVMM_NAME_LEN], from[POOLS_TEXT], to[POOLS_TEXT];

	if (log_life_allowed())
		pr_info("domain %s: moved from %s to %s, %u cached blocks dropped",
			domain_print(a->req->domain, name),
			pools_text(a->info.old_pool, a->info.old_shards, from),
			pools_text(a->info.pool, a->info.shards, to),
			a->info.dropped_blocks);
}

/* The tenant has as many domains as it may: an idle one gave its record. */
static void attach_log_replaced(const struct attach_call *a)
{
	char name[KVMM_NAME_LEN], old[KVMM_NAME_LEN];

	if (log_life_allowed())
		pr_warn("domain %s: dropped with its cache for the new domain %s: no more domains are allowed (domains= of --tenant and --user-quota, --max-domains)",
			domain_print(a->info.replaced, old),
			domain_print(a->req->domain, name));
}

/* Another identity attached: blocks of the last one were dropped. */
static void attach_log_dropped(const struct attach_call *a)
{
	char name[KVMM_NAME_LEN];

	if (a->info.replaced[0])
		attach_log_replaced(a);
	else if (a->info.moved)
		attach_log_moved(a);
	else if (a->info.dropped_blocks && log_life_allowed())
		pr_info("domain %s: another model identity attached, %u cached blocks dropped",
			domain_print(a->req->domain, name), a->info.dropped_blocks);
}

/* The client got less than it asked for. */
static void attach_log_cut(const struct attach_call *a)
{
	char name[KVMM_NAME_LEN], tenant[TENANT_TEXT];

	if (a->info.cut && log_life_allowed())
		pr_info("domain %s: its client asks for more memory.min, memory.low or weight than tenant %s may: kvctl set gives it, or min= and weight= of its quota",
			domain_print(a->req->domain, name),
			tenant_name(a->cs->sockets, a->c->key, tenant));
}

/* The domain is new and got the limits of the options. */
static void attach_log_limits(const struct attach_call *a)
{
	char text[256];

	if (!a->limited)
		return;
	domain_opt_format(a->limits, text, sizeof(text));
	if (a->refused)
		pr_warn("domain = %s: max is less than one block of %llu bytes, and is not set: give more",
			text, (unsigned long long)a->info.block_bytes);
	else
		pr_info("domain = %s: has these limits of the options", text);
}

static void attach_log(const struct attach_call *a)
{
	const struct kvmm_attach_rep *rep = a->rep;
	const struct client *c = a->c;
	char name[KVMM_NAME_LEN], tenant[TENANT_TEXT];
	const bool named = c->key & TENANT_NAMED;

	if (log_life_allowed())
		pr_info("client %u attached: %s (pid %d, uid %u), %s%s%sdomain %s",
			c->mm.id, c->info.comm, (int)c->info.pid, c->uid,
			named ? "tenant " : "",
			named ? tenant_name(a->cs->sockets, c->key, tenant) : "",
			named ? ", " : "", domain_print(a->req->domain, name));
	attach_log_cut(a);
	pr_debug("client %u: blocks of %llu bytes, %u in a span of %u extents, tail %.2f %%",
		 c->mm.id, (unsigned long long)rep->block_bytes, rep->span_blocks,
		 rep->span_extents, 100.0 * (double)rep->span_tail /
		 ((double)rep->span_extents * (double)rep->extent_size));
}

/* The core knows the client: it counts as attached, even if a later step fails. */
static void attach_list(struct clients *cs, struct client *c)
{
	c->stage = CLIENT_ATTACHED;
	c->deadline = 0;
	cs->nr_greeting--;
	list_del(&c->node);
	list_add_tail(&cs->attached, &c->node);
	cs->by_id[c->mm.id] = c;
	if (!kv_fault(KV_FAULT_deposit_client))
		deposit_put(cs->deposit, HOLD_CLIENT, c->mm.id, c->pidfd.fd, 0);
}

static void attach_count_refused(struct clients *cs, const struct client *c)
{
	struct tenant *t = tenant_find(cs, c->key);

	if (t)
		t->refused++;
}

/* Record the client for the next daemon. */
static void attach_keep(struct clients *cs, const struct client *c,
			const struct kvmm_attach_rep *rep)
{
	struct keep_client k = {
		.resumes	= !!(rep->features & KVMM_FEAT_RESUME),
		.key		= c->key,
		.sq_entries	= rep->sq_entries,
		.uid		= c->uid,
		.pid		= c->info.pid,
		.token		= { rep->token[0], rep->token[1] },
	};

	memcpy(k.comm, c->info.comm, sizeof(k.comm));
	keep_client_put(cs->deposit, c->mm.id, &k);
}

/**
 * attach_answer() - answer a program that only asks for the kind of the pool
 *
 * Such a program must choose its kernels before it can name its model.  @c is
 * closed and about to be freed.
 */
void attach_answer(struct clients *cs, struct client *c,
		   const struct kvmm_attach_req *req)
{
	struct kvmm_attach_rep rep = {
		.magic		= KVMM_REPLY_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.memory		= cs->setup->dev.tag ? KVMM_MEMORY_CUDA :
					       KVMM_MEMORY_HOST,
		.device		= cs->setup->dev.tag,
	};

	if (!attach_check_abi(req, &rep))
		attach_refuse(&rep, -ECANCELED, "only asked");
	/* The program gets the answer if it still listens. */
	(void)!sock_send(c->sock.fd, &rep, sizeof(rep), NULL, 0);
	client_drop(cs, c);
}

/**
 * attach_request() - answer the attach request of a connection
 * @req: a copy; judged here for the first time
 *
 * Afterwards @c is attached, or closed and about to be freed.
 */
void attach_request(struct clients *cs, struct client *c,
		    const struct kvmm_attach_req *req)
{
	struct kvmm_attach_req mine = *req;
	struct kvmm_attach_rep rep = {
		.magic		= KVMM_REPLY_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
	};
	struct attach_call a = { .cs = cs, .c = c, .req = &mine, .rep = &rep };
	int err = attach_build(&a, &mine);

	if (c->mm.id != CORE_NONE) {
		attach_keep(cs, c, &rep);
		attach_list(cs, c);
		attach_log_dropped(&a);
		attach_log_limits(&a);
	}
	if (!err) {
		c->pidfd.fn = client_on_pidfd;
		c->pidfd.arg = cs;
		err = watch_add(cs->loop, &c->pidfd, EPOLLIN);
	}
	if (err) {
		attach_count_refused(cs, c);
		if (log_allowed())
			pr_warn("%s (pid %d, uid %u) is refused: %s",
				c->info.comm, (int)c->info.pid, c->uid,
				rep.text[0] ? rep.text : strerror(-err));
		rep.status = err;
		/* The program gets the answer if it still listens. */
		err = sock_send(c->sock.fd, &rep, sizeof(rep), NULL, 0);
		client_abort(cs, c);
		return;
	}
	kv_fault_die(KV_FAULT_control_die);
	if (kv_fault(KV_FAULT_forbidden_call))
		syscall(SYS_personality, 0xffffffff);
	err = rings_send(c, &rep);
	if (err) {
		client_hang_up(cs, c);
		return;
	}
	keep_client_told(cs->deposit, c->mm.id);
	attach_log(&a);
	extents_send(cs, c);
}
