(* Reads whitespace-separated integers and says what the proved programs say of them; see README.md for the format.
   [check]: problems, one a line.  [shared]: problems of services that share workers, one a line.  [pipeline]: pipelines, one a
   line.  [accept]: logs, each a problem after "p", or after "d" the streams that are counted first and a problem of services that
   share workers, or a pipeline after "g", and the events of it, one a line.  [in-time]: such logs of services that share workers, or of
   pipelines: whether all in it is in time, by what is proved. *)
open Proved

let fuel = let rec count k acc = if k = 0 then acc else count (k - 1) (S acc) in count 200_000 O
let rec positive x = if x = 1 then XH else if x land 1 = 1 then XI (positive (x lsr 1)) else XO (positive (x lsr 1))
let number x = if x < 0 then failwith "a negative number" else if x = 0 then N0 else Npos (positive x)
let rec nat x = if x < 0 then failwith "a negative number" else if x = 0 then O else S (nat (x - 1))

(* The numbers of a line, one by one. *)
let words line = ref (List.filter (( <> ) "") (String.split_on_char ' ' line))
let word rest = match !rest with [] -> failwith "a line that is too short" | x :: l -> rest := l; x
let int rest = int_of_string (word rest)
let n rest = number (int rest)
let many rest item = List.init (int rest) (fun _ -> item rest)
let pair rest = let a = n rest in let b = n rest in (a, b)
let ended rest = if !rest <> [] then failwith "a line that is too long"

let bound rest =
  let every = n rest in let shift = n rest in
  { every; shift; offsets = many rest pair }
let stream rest =
  let rho = pair rest in
  let constraints = many rest pair in
  { rho; constraints; bounds = many rest bound }
let problem rest =
  let ndeadline = n rest in let nguard = n rest in let neager = int rest = 1 in
  let nworkers = many rest pair in
  let nstreams = many rest stream in
  ended rest;
  { ndeadline; nguard; neager; nworkers; nstreams }

(* A service and within what time its requests are said to begin; a stream and the number of its service. *)
let service rest =
  let nsize = n rest in let nspan = n rest in let nlimit = n rest in let nturn = n rest in
  ({ nsize; nspan; nlimit; nturn }, n rest)
let client rest = let of_service = nat (int rest) in (of_service, stream rest)
let sharing rest =
  let nrule = match int rest with 0 -> Earliest | 1 -> Turns | other -> failwith ("a rule " ^ string_of_int other) in
  let ncrew = n rest in let nlongest = n rest in let nlateness = n rest in let nexcess = n rest in
  let services = many rest service in
  let nclients = many rest client in
  ({ nrule; ncrew; nlongest; nlateness; nexcess; nservices = List.map fst services; nclients }, List.map snd services)

(* A stage says how many come before it; the first has no parent. *)
let stage rest =
  let pcrew = n rest in let psize = n rest in let pspan = n rest in let pparent = nat (int rest) in
  { pcrew; psize; pspan; pparent; pfan = n rest }
let pipeline rest =
  let pallowed = n rest in let plateness = n rest in
  let pstages = many rest stage in
  let psources = many rest stream in
  ended rest;
  { pstages; psources; pallowed; plateness }

let request rest = let nsrc = n rest in let nidx = n rest in { nsrc; nidx; narr = n rest }
let happens kind rest = match kind with
  | "a" -> Arrives (n rest)
  | "s" -> let w = nat (int rest) in let l = n rest in Starts (w, l, many rest request)
  | "e" -> Ends (nat (int rest))
  | "r" -> Refuses (request rest)
  | other -> failwith ("an event " ^ other)
let event rest =
  let at = n rest in
  let event = happens (word rest) rest in
  ended rest;
  (at, event)
let number_list rest = many rest (fun rest -> nat (int rest))
let shared_event rest =
  let at = n rest in
  let event = match word rest with "c" -> Counts (number_list rest) | kind -> Happens (happens kind rest) in
  ended rest;
  (at, event)

(* Of a source at which stage how many requests come. *)
let became rest = let stage = nat (int rest) in (stage, pair rest)
let stage_event rest =
  let at = n rest in
  let event = match word rest with
    | "a" -> Comes (n rest)
    | "s" -> let i = nat (int rest) in let w = nat (int rest) in let l = n rest in Begins (i, w, l, many rest n)
    | "e" -> let i = nat (int rest) in let w = nat (int rest) in Leaves (i, w, many rest became)
    | "r" -> GivesUp (request rest)
    | other -> failwith ("an event of a stage " ^ other) in
  ended rest;
  (at, event)

let rec lines f = match input_line stdin with line -> f line; lines f | exception End_of_file -> ()

let check () =
  lines (fun line -> print_endline (if decide fuel (problem (words line)) then "confirmed" else "not confirmed"))

let shared () =
  lines (fun line ->
    let rest = words line in
    let (pr, starts) = sharing rest in
    ended rest;
    print_endline (if decide_shared pr fuel starts then "confirmed" else "not confirmed"))

let pipelines () =
  lines (fun line -> print_endline (if decide_pipeline (pipeline (words line)) fuel then "confirmed" else "not confirmed"))

(* What takes in the next event: what takes in the one after that, or nothing if the event is refused. *)
type follower = Follower of (string list ref -> follower option)
let rec follow advance event state =
  Follower (fun rest -> Option.map (follow advance event) (advance state (event rest)))

let problem_of_log kind rest =
  let follower = match kind with
    | 'p' -> let pr = problem rest in follow (advance pr fuel) event (start pr)
    | 'g' -> let pr = pipeline rest in follow (advance_pipeline pr) stage_event (begin_pipeline pr)
    | _ ->
      let first = number_list rest in
      let (pr, _) = sharing rest in
      follow (advance_shared pr) shared_event (begin_shared pr first) in
  ended rest;
  follower

(* The follower and events so far; no follower once an event has been refused. *)
let accept () =
  let log = ref None in
  let told () = match !log with
    | Some (Some _, count) -> Printf.printf "accepted %d\n" count
    | Some (None, count) -> Printf.printf "refused %d\n" count
    | None -> () in
  lines (fun line ->
    let rest = words line in
    if String.length line > 0 && String.contains "pdg" line.[0] then begin
      told (); ignore (word rest);
      log := Some (Some (problem_of_log line.[0] rest), 0)
    end else match !log with
      | Some (Some (Follower next), count) ->
        log := Some (match next rest with Some follower -> (Some follower, count + 1) | None -> (None, count))
      | Some (None, _) -> ()
      | None -> failwith "an event before a problem");
  told ()

(* What is said of a log, once all of its events are there. *)
type whole = Whole : (string list ref -> 'e) * 'e list * ('e list -> bool) -> whole

let whole kind rest =
  let log = match kind with
    | 'g' -> let pr = pipeline rest in Whole (stage_event, [], log_hits pr fuel)
    | _ ->
      ignore (number_list rest);
      let (pr, starts) = sharing rest in
      Whole (shared_event, [], log_in_time pr fuel starts) in
  ended rest;
  log

(* Of each log of a pipeline, or of services that share workers, whose streams are all counted. *)
let in_time () =
  let log = ref None in
  let told () = match !log with
    | Some (Whole (_, events, is_in_time)) ->
      print_endline (if is_in_time (List.rev events) then "in time" else "not shown")
    | None -> () in
  lines (fun line ->
    let rest = words line in
    if String.length line > 0 && String.contains "dg" line.[0] then begin
      told (); ignore (word rest);
      log := Some (whole line.[0] rest)
    end else match !log with
      | Some (Whole (event, events, is_in_time)) -> log := Some (Whole (event, event rest :: events, is_in_time))
      | None -> failwith "an event before a problem");
  told ()

let () = match Sys.argv with
  | [| _; "check" |] -> check ()
  | [| _; "shared" |] -> shared ()
  | [| _; "pipeline" |] -> pipelines ()
  | [| _; "accept" |] -> accept ()
  | [| _; "in-time" |] -> in_time ()
  | _ -> prerr_endline "usage: weir-proved check|shared|pipeline|accept|in-time <INPUT"; exit 2
