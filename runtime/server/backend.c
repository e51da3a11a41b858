// SPDX-License-Identifier: Apache-2.0
/*
 * backend.c - one model, its engine, and their thread
 *
 *	LOADING --> DETACHED <--> ATTACHED
 *	   |           |             |
 *	   +-> FAILED <+ (the first)  +-> LOST
 *
 * The model is loaded once and stays.  The attachment comes and goes with the
 * daemon.  When a step reports that the attachment has ended, every sample has
 * got its end.  The backend then creates a new engine, at first at once, later
 * with pauses that double up to two seconds.  Meanwhile work is refused at once
 * and never kept.
 *
 * A GPU that failed is lost to this process for good: every sample has got its
 * end, new work is refused, and the server ends.
 *
 * Before the first attachment, an error that waiting cannot change (not
 * admitted, another ABI, an option, a domain that another model uses) ends the
 * program, because then a person is watching.  After it no such error does.
 *
 * The backend explains its state to the operator, in the log and at /ready.  An
 * API client only learns that there is no daemon now.
 *
 * The thread sleeps in two places: in engine_step() while there is work, for at
 * most BACKEND_STEP_NS, and on its mailbox while there is none, for at most
 * BACKEND_IDLE_MS, so that it soon notices when the daemon dies.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>
#include <kvmm/notify.h>
#include <uapi/kvmm.h>

#include "runtime/engine/ranked.h"
#include "runtime/server/capacity.h"
#include "runtime/server/worker.h"
#include "runtime/template/chat.h"

#define BACKEND_STEP_NS		5000000ll
#define BACKEND_IDLE_MS		100
#define BACKEND_RETRY_MS	100
#define BACKEND_RETRY_MAX_MS	2000

static_assert(BACKEND_IDENTITY_LEN == KVMM_IDENTITY_LEN, "one identity");

const char *backend_state_name(enum backend_state state)
{
	static const char * const names[] = {
#define x(name, word) [BACKEND_##name] = word,
		BACKEND_STATES(x)
#undef x
	};

	return names[state];
}

enum backend_state backend_get_state(const struct backend *b)
{
	/* Pairs with the release store in set_state(). */
	return (enum backend_state)load_acquire(&b->state);
}

static void set_why(struct backend *b, const char *why)
{
	pthread_mutex_lock(&b->lock);
	snprintf(b->why, sizeof(b->why), "%s", why);
	pthread_mutex_unlock(&b->lock);
}

void backend_why(struct backend *b, char *text, size_t len)
{
	pthread_mutex_lock(&b->lock);
	snprintf(text, len, "%s", b->why);
	pthread_mutex_unlock(&b->lock);
}

static void set_state(struct backend *b, enum backend_state state)
{
	store_release(&b->state, (u32)state);
	mailbox_post(b->o.to, b->o.notify);
}

static void fail(struct backend *b, int err, const char *why)
{
	set_why(b, why);
	b->exit_err = err;
	set_state(b, BACKEND_FAILED);
}

/* ---- owners to wake ---- */

static void wake_due(struct backend *b)
{
	while (b->nr_due)
		mailbox_wake(b->due[--b->nr_due]);
}

void backend_post(struct backend *b, struct mailbox *to, struct mail *m)
{
	u32 i = 0;

	if (!mailbox_post_quietly(to, m))
		return;
	while (i < b->nr_due && b->due[i] != to)
		i++;
	if (i == BACKEND_DUE_MAX)
		wake_due(b);
	if (i == b->nr_due || !b->nr_due)
		b->due[b->nr_due++] = to;
}

/* ---- counters ---- */

static void stats_add(struct engine_stats *sum, const struct engine_stats *st)
{
#define x(name, text) sum->name += st->name;
	ENGINE_STATS(x)
#undef x
}

/* The pool that the engine has a part of. */
static struct backend_kv kv_of(const struct backend *b)
{
	struct backend_kv kv = { .block_tokens = b->block_tokens, .tokens = b->kv_tokens };
	const struct kvmm_attach_rep *rep;

	if (b->engine) {
		rep = engine_attach_info(b->engine);
		kv.blocks = (u64)rep->pool_extents / rep->span_extents * rep->span_blocks;
	}
	return kv;
}

static void publish(struct backend *b)
{
	const struct backend_kv kv = kv_of(b);
	struct engine_stats st = { 0 };
	struct engine_load load = { 0 };
	struct model_stats counts = { 0 };

	if (b->model)
		model_get_stats(b->model, &counts);
	if (b->engine) {
		engine_get_stats(b->engine, &st);
		engine_get_load(b->engine, &load);
	}
	stats_add(&st, &b->past);
	/*
	 * The engine is well as long as steps end, or when it has nothing to
	 * do.
	 */
	if (st.steps != b->stats.steps || !(load.running + load.waiting))
		WRITE_ONCE(b->beat_ns, (s64)kv_now_ns());
	pthread_mutex_lock(&b->lock);
	b->stats = st;
	b->load = load;
	b->counts = counts;
	b->kv = kv;
	pthread_mutex_unlock(&b->lock);
}

void backend_look(struct backend *b, struct backend_view *v)
{
	pthread_mutex_lock(&b->lock);
	v->stats = b->stats;
	v->load = b->load;
	v->counts = b->counts;
	v->kv = b->kv;
	v->attaches = b->attaches;
	pthread_mutex_unlock(&b->lock);
	v->state = backend_get_state(b);
	v->silent_ns = (s64)kv_now_ns() - READ_ONCE(b->beat_ns);
}

/* ---- loading and attaching ---- */

/* The built-in template: the text of each message, and an empty line. */
static const char plain[] =
	"{{ bos_token }}{% for message in messages %}"
	"{{ message['content'] | trim }}\n\n{% endfor %}";

/*
 * Read a template file: to be freed with free(), or NULL with a line at @why.
 */
static char *template_read(const char *path, char *why, size_t len)
{
	FILE *f = fopen(path, "re");
	char *text = malloc(TMPL_SOURCE_MAX + 2);
	size_t n = 0;
	bool bad = !f || !text;

	if (!bad)
		n = fread(text, 1, TMPL_SOURCE_MAX + 1, f);
	bad = bad || ferror(f) || n > TMPL_SOURCE_MAX || memchr(text, 0, n);
	if (bad)
		snprintf(why, len, "--chat-template %s: %s%s", path, !f ?
			 strerror(errno) : !text ? "no memory" :
			 "it is no text of at most 1 MiB", !f || text ?
			 ": give auto, plain or a file with a template" : "");
	else
		text[n] = '\0';
	if (f)
		fclose(f);
	if (!bad)
		return text;
	free(text);
	return NULL;
}

/*
 * A template that an option asks for must be loaded; without the model's own
 * template the server refuses only chats.
 * Return: 0, or a negative errno that was reported.
 */
static int load_chat(struct backend *b)
{
	const char *name = b->o.chat_template;
	const bool own = !strcmp(name, "auto");
	char *text = NULL;
	char why[480];
	int ret;

	if (!own && strcmp(name, "plain")) {
		text = template_read(name, why, sizeof(why));
		if (!text) {
			fail(b, -ENOENT, why);
			return -ENOENT;
		}
	}
	ret = chat_load(b->o.dir, own ? NULL : text ? text : plain, &b->chat,
			why, sizeof(why));
	free(text);
	if (ret && (!own || ret == -ENOMEM)) {
		fail(b, ret, why);
		return ret;
	}
	if (ret)
		pr_warn("%s: %s: /v1/chat/completions is refused; --chat-template gives it another",
			b->o.dir, why);
	b->api.chat = b->chat;
	return 0;
}

/* Say how much loading has quantized, if it has. */
static void say_made(const struct model_info *i)
{
	if (i->made_bytes)
		pr_info("%s: %.1f MB of weights became %.1f MB of quantized matrices in %.1f s",
			i->dir, (double)i->made_of / 1e6,
			(double)i->made_bytes / 1e6, (double)i->made_ns / 1e9);
}

static int load_adapters(struct backend *b)
{
	struct model_error err;
	int ret = served_load_reserved(&b->adapters, b->model, b->o.engine.max_rank, &err);

	if (ret)
		fail(b, ret, err.text);
	return ret;
}

static int load(struct backend *b)
{
	struct kvmm_group group[MODEL_MAX_GROUPS];
	char text[TOKENIZER_ERR_MAX];
	struct engine_error err;
	int ret;

	ret = engine_load(b->o.dir, &b->o.model, b->o.engine.ranks, &b->model,
			  b->identity, &err);
	if (ret) {
		fail(b, ret, err.text);
		return ret;
	}
	say_made(model_info(b->model));
	ret = tokenizer_load(b->o.dir, &b->tok, text, sizeof(text));
	if (ret) {
		fail(b, ret, text);
		return ret;
	}
	b->o.engine.identity = b->identity;
	ret = engine_groups(model_info(b->model), &b->o.engine, group);
	if (ret < 0) {
		fail(b, ret, "a block of the model's layer groups is larger than any pool: give a smaller --block-tokens");
		return ret;
	}
	b->hit_tokens = (u32)ret;
	b->block_tokens = group[0].block_tokens;
	b->api = (struct api_model){
		.name = b->o.name, .tok = b->tok, .info = model_info(b->model),
		.priority = b->o.priority, .max_samples = b->o.max_samples,
	};
	ret = load_chat(b);
	if (!ret)
		ret = load_adapters(b);
	if (ret)
		return ret;
	b->loaded = true;
	set_why(b, "looking for the kvmm daemon");
	set_state(b, BACKEND_DETACHED);
	/* The wait for a daemon has its own time. */
	(void)kv_notify(KV_NOTIFY_MORE);
	return 0;
}

/* Can the same attempt succeed later? */
static bool may_heal(int err)
{
	switch (-err) {
	case EACCES:
	case EPERM:
	case EEXIST:
	case EINVAL:
	case EPROTO:
	case EPROTONOSUPPORT:
	case EOPNOTSUPP:
	case E2BIG:
	case ENAMETOOLONG:
	case ENXIO:
		return false;
	default:
		return true;
	}
}

static void detach(struct backend *b)
{
	struct engine_stats st;

	engine_get_stats(b->engine, &st);
	engine_destroy(b->engine);
	sessions_attach(&b->sessions, NULL);
	wake_due(b);
	b->engine = NULL;
	/* Samples ended by engine_destroy() are not counted. */
	stats_add(&b->past, &st);
}

/*
 * Refuse a pool that holds no sequence of the full length.  A daemon that comes back
 * with such a pool is only warned of.
 */
static int judge_capacity(struct backend *b)
{
	char why[768];
	int ret = capacity_tell(engine_attach_info(b->engine), b->model,
				&b->o.engine, b->o.name, why, sizeof(why));

	if (!ret)
		return 0;
	if (b->was_attached) {
		pr_warn("%s", why);
		return 0;
	}
	detach(b);
	fail(b, ret, why);
	return ret;
}

static int attach(struct backend *b)
{
	struct engine_error err;
	int ret;

	ret = engine_create(b->model, &b->o.engine, &b->engine, &err);
	if (!ret && judge_capacity(b))
		return -EDQUOT;
	if (!ret) {
		pr_info("attached to kvmm as client %u%s",
			engine_attach_info(b->engine)->client,
			b->was_attached ? " again" : "");
		pthread_mutex_lock(&b->lock);
		b->attaches++;
		b->why[0] = '\0';
		pthread_mutex_unlock(&b->lock);
		b->was_attached = true;
		sessions_attach(&b->sessions, b->engine);
		set_state(b, BACKEND_ATTACHED);
		return 0;
	}
	if (!b->was_attached && !may_heal(ret)) {
		fail(b, ret, err.text);
		return ret;
	}
	/* Another thread reads the text, and this one alone writes it. */
	if (strcmp(b->why, err.text)) {
		pr_warn("%s; trying again until it is there", err.text);
		set_why(b, err.text);
		set_state(b, BACKEND_DETACHED);
	}
	return -EAGAIN;
}

/* ---- the thread ---- */

void backend_take(struct backend *b, struct work *w)
{
	char why[768] = "";

	if (!b->engine)
		backend_why(b, why, sizeof(why));
	work_run(w, b->engine, why);
}

static void take_mail(struct backend *b)
{
	mailbox_deliver(&b->inbox);
	wake_due(b);
	served_sweep(&b->adapters, b->engine);
}

/* Sleep until there is mail, for at most @ms, and deliver it. */
static void rest(struct backend *b, int ms)
{
	struct pollfd p = { .fd = b->inbox.efd, .events = POLLIN };

	publish(b);
	if (poll(&p, 1, ms) > 0)
		mailbox_hush(&b->inbox);
	take_mail(b);
}

/*
 * Return: 0, or -ENOTRECOVERABLE: the GPU failed, there will be no other
 * engine.
 */
static int serve(struct backend *b)
{
	int ret = 0;

	while (!load_acquire(&b->stop)) {
		if (ret > 0) {
			publish(b);
			take_mail(b);
		} else {
			rest(b, BACKEND_IDLE_MS);
		}
		sessions_tick(&b->sessions);
		ret = engine_step(b->engine, BACKEND_STEP_NS);
		wake_due(b);
		if (ret < 0)
			break;
	}
	if (ret < 0)
		set_why(b, engine_strerror(b->engine));
	if (ret == -ENOTRECOVERABLE) {
		set_state(b, BACKEND_LOST);
	} else if (ret < 0) {
		pr_warn("%s; requests are answered 503 until it is back",
			engine_strerror(b->engine));
		set_state(b, BACKEND_DETACHED);
	}
	detach(b);
	rest(b, 0);
	return ret == -ENOTRECOVERABLE ? ret : 0;
}

static void wait_and_refuse(struct backend *b, s64 ms)
{
	const s64 end = (s64)kv_now_ns() + ms * 1000000;
	s64 left;

	while (!load_acquire(&b->stop) && (left = end - (s64)kv_now_ns()) > 0)
		rest(b, (int)(left / 1000000) + 1);
}

static void *backend_main(void *arg)
{
	struct backend *b = arg;
	s64 pause = BACKEND_RETRY_MS;
	int err;

	err = load(b);
	while (!err && !load_acquire(&b->stop)) {
		rest(b, 0);
		err = attach(b);
		if (!err) {
			err = serve(b);
			pause = BACKEND_RETRY_MS;
		} else if (err == -EAGAIN) {
			wait_and_refuse(b, pause);
			pause = min(2 * pause, (s64)BACKEND_RETRY_MAX_MS);
			err = 0;
		}
	}
	/* Refuse all work from now on, until the last work is released. */
	while (!load_acquire(&b->stop))
		rest(b, BACKEND_IDLE_MS);
	take_mail(b);
	return NULL;
}

/* Give the adapters of this model their names, until it loads them. */
static int reserve_adapters(struct backend *b)
{
	int err = 0;
	u32 i;

	served_init(&b->adapters);
	for (i = 0; !err && i < b->o.nr_adapters; i++)
		if (b->o.adapters[i].model == b->o.index)
			err = served_reserve(&b->adapters, b->o.adapters[i].name,
					     b->o.adapters[i].dir);
	return err;
}

int backend_start(struct backend *b, const struct backend_opts *o)
{
	int err;

	memset(b, 0, sizeof(*b));
	b->o = *o;
	b->o.engine.max_leases = SESSIONS_LEASES;
	sessions_init(&b->sessions);
	b->beat_ns = (s64)kv_now_ns();
	snprintf(b->why, sizeof(b->why), "the model is being loaded");
	pthread_mutex_init(&b->lock, NULL);
	err = reserve_adapters(b);
	if (err)
		goto out_free_adapters;
	err = mailbox_init(&b->inbox);
	if (err)
		goto out_free_adapters;
	err = -pthread_create(&b->thread, NULL, backend_main, b);
	if (err)
		goto out_destroy_inbox;
	pthread_setname_np(b->thread, "kvrt-engine");
	return 0;

out_destroy_inbox:
	mailbox_destroy(&b->inbox);
out_free_adapters:
	served_free(&b->adapters);
	pthread_mutex_destroy(&b->lock);
	return err;
}

bool backend_join(struct backend *b, u32 wait_ms)
{
	struct timespec end;

	store_release(&b->stop, 1);
	mailbox_wake(&b->inbox);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += wait_ms / 1000;
	end.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	return !pthread_timedjoin_np(b->thread, NULL, &end);
}

void backend_free(struct backend *b)
{
	mailbox_deliver(&b->inbox);
	sessions_free(&b->sessions);
	chat_free(b->chat);
	tokenizer_free(b->tok);
	served_free(&b->adapters);
	model_free(b->model);
	mailbox_destroy(&b->inbox);
	pthread_mutex_destroy(&b->lock);
}
