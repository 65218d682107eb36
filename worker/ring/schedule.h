#pragma once

// The ring's timetable, as pure functions of rank r, step or hop t, and size p. Shard j starts on rank j; at
// step t rank r works on shard (r - t) mod p, sends what it holds to r + 1 and receives from r - 1.

namespace metp {

constexpr int Mod(int x, int p) { return (x % p + p) % p; }

/// Shard that rank r holds at step t.
constexpr int HeldShard(int r, int t, int p) { return Mod(r - t, p); }

/// Two slots alternate: the one that is worked on in step t. A receive during step t fills the other.
constexpr int Slot(int t) { return t % 2; }
constexpr int ArrivalSlot(int t) { return (t + 1) % 2; }

/// Gathering (p - 1 hops): in hop t rank r passes on piece r - t and receives piece r - t - 1.
constexpr int GatherSends(int r, int t, int p) { return Mod(r - t, p); }
constexpr int GatherReceives(int r, int t, int p) { return Mod(r - t - 1, p); }

/// Reduce-scatter (p - 1 hops): in hop t rank r sends its sum of piece r - t - 1 so far and receives the one
/// of piece r - t - 2, to which it adds its own; after the last hop it has received piece r, complete but for
/// its own part.
constexpr int ScatterSends(int r, int t, int p) { return Mod(r - t - 1, p); }
constexpr int ScatterReceives(int r, int t, int p) { return Mod(r - t - 2, p); }

}  // namespace metp
