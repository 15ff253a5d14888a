/* Connections that a listener has accepted and that have not proved the job's secret yet. Every
 * program that reaches the port can make one, and each holds a descriptor. So they are few, their
 * time is short, and the oldest one goes when there is no room for another. All listeners of the
 * process together let them hold no more than a part of the descriptors that the process may open:
 * a flood at one communicator takes no descriptor that another one needs. */
#ifndef CORE_ADMISSION_H
#define CORE_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#define ADMISSION_LEAST 8   /* of one listener, whatever the others have         */
#define ADMISSION_SHARE 8   /* all of them: one in so many of the process's descriptors */
#define ADMISSION_MOST  512 /* ... and no more than this                         */

/* Embedded in a connection; zeroed before it is added for the first time. */
struct admission_entry {
	struct admission_entry *next, **link; /* link NULL: it is not on a list */
	uint64_t deadline_ns;
	bool has_proved; /* set by admission_proved */
	bool goes_last;  /* set by the listener: dropped only where no other can be */
};

/* The list of one listener; its lock is the listener's. */
struct admission {
	struct admission_entry *oldest, **end;
	int most, time_ms;
	int count, unproved;
};

/* most: ADMISSION_LEAST or more. time_ms: for the proof, and again for what follows the proof. */
void admission_init(struct admission *admission, int most, int time_ms);
/* False: the listener lets the oldest go first, and asks again. */
bool admission_has_room(const struct admission *admission);
void admission_add(struct admission *admission, struct admission_entry *entry);
/* The entry has proved the secret: it holds no place any more, and its time begins again. */
void admission_proved(struct admission *admission, struct admission_entry *entry);
/* The entry's connection has ended, or nothing more is expected from it. An entry on no list is
 * fine. */
void admission_remove(struct admission *admission, struct admission_entry *entry);
/* The oldest without a proof, of those that go last or of the others; NULL: there is none. */
struct admission_entry *admission_oldest(const struct admission *admission, bool goes_last);
/* An entry whose time is up, or NULL. */
struct admission_entry *admission_late(const struct admission *admission, uint64_t now_ns);
/* When the next one's time is up; DEADLINE_NONE: never. */
uint64_t admission_due_ns(const struct admission *admission);

#endif
